#pragma once
// Settles who may call this pool manager, how it and its workers are reached, and the tokens of calls between them.
#include <filesystem>
#include <string>
#include <vector>

#include "base/entropy.h"
#include "config/config.h"
#include "config/pool_credential.h"
#include "net/http/auth.h"

namespace llorch::pool_managerd::registration {

struct NodeAccess {
  // The pool's credential; if the pool is not paired, one made for this process and its workers.
  config::PoolCredential credential;
  bool paired = false;
  net::http::AuthRules auth;
  std::string bind_address;
  std::string advertised_host;  // at which others reach this node and its workers
  std::string local_host;       // at which they reach each other
};

struct NodeAccessInput {
  const config::Config& config;
  std::string bind_address;  // without port and brackets
  const std::filesystem::path& state_directory;
  const std::string& api_token;  // of a local operator; may be empty
  const std::vector<std::string>& reader_tokens;
};
// Reads the credential's file. Errors: NON_LOOPBACK_WITHOUT_TOKEN (neither paired nor with a token), CONFIG_INVALID (a
// wildcard bind without `advertise`, a credential of another pool, a file that is none or that others can read).
base::Result<NodeAccess> node_access(const NodeAccessInput& input, base::Entropy& entropy);

}  // namespace llorch::pool_managerd::registration
