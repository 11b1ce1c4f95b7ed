#pragma once
// Where orchestratord answers when nobody has said so, and what token it is sent.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "config/config.h"

namespace llorch::cli {

struct AddressQuestion {
  std::filesystem::path state_directory;
  std::string bind;          // orchestratord.bind of the configuration
  bool sends_token = false;  // then a stranger's port is not an answer
};

// "http://host:port" of the orchestratord that runs in the state directory, else of the configuration, as it is called on this machine.
// Errors: UNREACHABLE, if the one that ran there has ended; FORBIDDEN, if a token would go to a name, which is no bind, or to a process
// of a user of this machine who may not see it. That is anybody but this user, root, and the owners of the state directory and of the
// package's.
base::Result<std::string> server_address(const AddressQuestion& question);

// Of a stack whose `llorch up` runs, while its orchestratord does not answer: UNREACHABLE, and that it comes back. Nullopt: no such
// process runs in this directory.
std::optional<base::Error> restarting_error(const std::filesystem::path& state_directory);

struct TokenQuestion {
  const config::Config& config;
  std::string url;  // that the caller has said; empty: server_address() says
  // auth.token_file is the caller's word too: of a flag, --config among them, or of the environment.
  bool file_is_said = false;
  std::function<const char*(const char*)> getenv;
};
struct ClientToken {
  std::string token;         // empty: none
  bool is_withheld = false;  // auth.token_file is for another server
  bool goes_before = false;  // it is the environment's, and auth.token_file names another
};
// What a client sends: the token of its environment, else that of auth.token_file. The latter is the operator's of this machine; where
// the caller has said a URL, it goes only to this machine, to orchestratord.bind and to pool-managerd.orchestrator_url. Errors: as
// load_api_token().
base::Result<ClientToken> client_token(const TokenQuestion& question);
// Whether `url` is of this machine.
bool is_here(const std::string& url);

}  // namespace llorch::cli
