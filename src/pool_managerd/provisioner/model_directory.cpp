#include "pool_managerd/provisioner/model_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "engine/io/model_layout.h"
#include "pool_managerd/provisioner/sources/locate.h"

namespace llorch::pool_managerd::provisioner {

namespace {
namespace fs = std::filesystem;
}  // namespace

std::optional<fs::path> model_in(const fs::path& directory) {
  std::error_code ec;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->path().extension() == ".gguf") files.push_back(it->path());
  }
  if (!files.empty()) return *std::min_element(files.begin(), files.end());
  if (fs::is_regular_file(directory / "config.json", ec)) return directory;
  return std::nullopt;
}

std::int64_t bytes_in(const fs::path& directory) {
  std::int64_t bytes = 0;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code size_ec;
    const auto size = it->file_size(size_ec);
    if (!size_ec) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

bool is_signature(const fs::path& file) {
  const auto ends_so = [&](std::string_view end) { return file.filename().string().ends_with(end); };
  return std::any_of(sources::kSignatureEnds.begin(), sources::kSignatureEnds.end(), ends_so);
}

std::string signature_in(const fs::path& directory) {
  std::error_code ec;
  for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    if (is_signature(it->path())) return it->path().filename().string();
  }
  return {};
}

std::set<std::pair<dev_t, ino_t>> inodes_in(const fs::path& directory) {
  std::set<std::pair<dev_t, ino_t>> out;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    if (it.depth() == 0 && it->path().filename().string().starts_with('.')) it.disable_recursion_pending();
    struct stat st {};
    if (::lstat(it->path().c_str(), &st) == 0 && S_ISREG(st.st_mode)) out.emplace(st.st_dev, st.st_ino);
  }
  return out;
}

base::Result<> sync_all(const fs::path& directory) {
  std::error_code ec;
  for (fs::recursive_directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    const int fd = ::open(it->path().c_str(), O_RDONLY | O_CLOEXEC);
    const bool synced = fd >= 0 && ::fsync(fd) == 0;
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (!synced) return base::fail(base::io_error("cannot sync", it->path(), error));
    TRY(base::sync_parent_directory(it->path()));
  }
  return {};
}

base::Result<> remove_others(const fs::path& directory, const fs::path& model) {
  std::set<fs::path> kept;
  for (const engine::io::ModelFile& file : TRY(engine::io::model_file_list(model))) kept.insert(file.path);
  std::error_code ec;
  std::vector<fs::path> others;
  for (fs::recursive_directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code file_ec;
    if (!it->is_directory(file_ec) && !kept.contains(it->path())) others.push_back(it->path());
  }
  for (std::size_t i = 0; !ec && i < others.size(); ++i) fs::remove(others[i], ec);
  if (ec) return base::fail(base::io_error("cannot remove what is no part of the model from", directory, ec.value()));
  return {};
}

}  // namespace llorch::pool_managerd::provisioner
