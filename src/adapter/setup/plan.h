#pragma once
// What happens for an engine of another system, in order, before any of it happens: the steps of an installation and of a start, and
// what is missing for them. Looks at files; runs and asks nothing. The same configuration on the same machine gives the same steps.
#include <string>
#include <variant>
#include <vector>

#include "adapter/setup/installation.h"

namespace llorch::adapter::setup {

// What an installation does in a step. Files that are fetched lie in DIRECTORY/downloads.
struct FetchFile {
  std::string url;     // https://... or file:/...
  std::string sha256;  // hex
  std::string name;
};
struct FetchWheel {
  std::string project, version;
  std::string sha256;
};
struct Unpack {
  std::string name;  // of what was fetched; an archive by its ending, else the program itself
};
struct RunCommand {
  std::vector<std::string> command;
  bool asks_network = false;  // of the host of `url`
  std::string url;
};
struct CheckProgram {
  std::string path;  // absolute
};
using Action = std::variant<std::monostate, FetchFile, FetchWheel, Unpack, RunCommand, CheckProgram>;

struct Step {
  std::string
      kind;  // "policy", "tool", "fetch", "unpack", "run", "check", "installed"; "connect", "key", "memory", "start", "self-test"
  std::string detail;  // one sentence; no secret
  bool missing = false;
  std::string what_to_do;  // when it is missing
  bool refused = false;    // missing, because the configuration does not allow it
  Action action;
};

struct Machine {
  config::InstallPolicyConfig policy;
  std::string path_variable;  // PATH
  int cores = 1;
};

// Empty where nothing is to be installed.
std::vector<Step> installation_plan(const config::EngineConfig& engine, const Machine& machine);
// With the installation, unless it is there, up to an engine that serves.
std::vector<Step> plan(const config::EngineConfig& engine, const Machine& machine);

}  // namespace llorch::adapter::setup
