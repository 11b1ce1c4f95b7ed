#include "orchestratord/daemon/run_file.h"

#include <boost/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/run_file.h"

namespace llorch::orchestratord::daemon {

namespace {
constexpr const char* kDirectory = "run";
constexpr const char* kName = "orchestratord.json";

bool is_running(const boost::json::value* pid, const boost::json::value* start_ticks) {
  if (pid == nullptr || start_ticks == nullptr || !pid->is_int64() || !start_ticks->is_int64()) return false;
  if (!std::in_range<int>(pid->get_int64()) || start_ticks->get_int64() < 0) return false;
  return base::recorded_process_runs(static_cast<int>(pid->get_int64()),
                                     static_cast<std::uint64_t>(start_ticks->get_int64()));
}
}  // namespace

base::Result<RunFile> RunFile::write(const std::filesystem::path& state_directory, const std::string& bind) {
  const auto directory = state_directory / kDirectory;
  TRY(base::ensure_private_directory(directory));
  const auto path = directory / kName;
  TRY(base::write_run_file(path, bind));
  return RunFile(path);
}

base::Result<std::string> RunFile::bind_of(const std::filesystem::path& state_directory) {
  const auto text = base::read_file(state_directory / kDirectory / kName, 65'536);
  boost::json::error_code failed;
  const boost::json::value record = text ? boost::json::parse(*text, failed) : boost::json::value();
  const auto member = [&](const char* key) {
    return record.is_object() ? record.get_object().if_contains(key) : nullptr;
  };
  const auto* const bind = failed ? nullptr : member("bind");
  // One that was killed leaves its record, and its port is anybody's.
  if (bind == nullptr || !bind->is_string() || !is_running(member("pid"), member("start_ticks"))) {
    return base::fail(base::ErrorCode::kUnreachable,
                      "orchestratord runs here and does not say yet where it listens; try again when it serves");
  }
  return std::string(bind->get_string());
}

RunFile::~RunFile() {
  std::error_code ec;
  if (!path_.empty()) std::filesystem::remove(path_, ec);
}

}  // namespace llorch::orchestratord::daemon
