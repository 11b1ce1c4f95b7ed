#pragma once
// Where orchestratord answers when nobody has said so.
#include <filesystem>
#include <string>

#include "base/result.h"

namespace llorch::cli {

struct AddressQuestion {
  std::filesystem::path state_directory;
  std::string bind;          // orchestratord.bind of the configuration
  bool sends_token = false;  // then a stranger's port is not an answer
};

// "http://host:port" of the orchestratord that runs in the state directory, else of the configuration. Errors: UNREACHABLE, if the
// one that ran there has ended; FORBIDDEN, if a token would go to a name, which is no bind, or to a process of a user of this machine
// who may not see it. That is anybody but this user, root, and the owners of the state directory and of the package's.
base::Result<std::string> server_address(const AddressQuestion& question);

}  // namespace llorch::cli
