// llorch backup and restore.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/process.h"
#include "cli/commands.h"

namespace llorch::cli {

int copy_store(const GlobalOptions& global, StoreCopy copy, const std::string& file) {
  const std::filesystem::path program = std::filesystem::path(base::executable_directory()) / "orchestratord";
  std::vector<std::string> args{program.string(), "--state-dir", state_directory(global).string()};
  if (!global.config_file.empty()) args.insert(args.end(), {"--config", global.config_file});
  for (const std::string& item : global.set) args.insert(args.end(), {"--set", item});
  if (global.json) args.emplace_back("--json");
  args.insert(args.end(), {copy == StoreCopy::kBackup ? "--backup" : "--restore", file});
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  return report(base::io_error("cannot start", program, errno), global.json);
}

}  // namespace llorch::cli
