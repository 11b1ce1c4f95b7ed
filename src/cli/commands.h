#pragma once
// One function per command; each returns the process's exit code.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/context.h"
#include "cli/determinism/command.h"
#include "cli/stream/request.h"
#include "wire/session.h"

namespace llorch::cli {

struct UpOptions {
  bool cpu = false;
  bool detach = false;
  std::vector<std::string> models;  // files or names to offer; none: what the configuration names
  std::string engine;               // of another system that runs the model: "llama.cpp"; empty: our own
  std::string engine_binary;        // its program; empty: that of PATH, else the catalogue's
  bool install_engine = false;      // that of the catalogue may be installed
};
int up(const GlobalOptions& global, const UpOptions& options);
int down(const GlobalOptions& global);
// orchestratord does it, in place of this process: only it knows its store.
enum class StoreCopy { kBackup, kRestore };
int copy_store(const GlobalOptions& global, StoreCopy copy, const std::string& file);

// What to send as the model of a request, after models::ensure_model(). Ctrl-C ends it, and leaves a pull to itself. REQUIRES: called
// before base::block_stop_signals().
base::Result<std::string> model_to_run(const GlobalOptions& global, const RunOptions& options);
int run_prompt(const GlobalOptions& global, const RunOptions& options);
// `options.prompt` and `options.messages` are not looked at: what is said comes from the terminal.
int chat_with_model(const GlobalOptions& global, const RunOptions& options);

struct VerifyOptions {
  std::string receipt;                      // a job's id, a file, or - for standard input
  RunOptions run;                           // the original request; model empty: found by the receipt
  std::string prompt_file;                  // - for standard input; empty: run says
  std::string request_file;                 // the body of POST /v2/tasks as it was sent; empty: run says
  std::string files;                        // a model's name: no receipt, but the bytes of its files
  determinism::CommandOptions determinism;  // with a model: no receipt, but that
};
int verify_receipt(const GlobalOptions& global, const VerifyOptions& options);

// From the first token; Ctrl-C leaves the job running.
int attach_to_job(const GlobalOptions& global, const std::string& job_id);

int list_engines(const GlobalOptions& global);
// What would happen for it, and what is missing. kFailed if anything is.
int plan_engine(const GlobalOptions& global, const std::string& name);
// Prints the plan, then has pool-managerd carry it out on this machine.
int install_engine(const GlobalOptions& global, const std::string& name);
int remove_engine(const GlobalOptions& global, const std::string& name);

// `tenant`: of this one alone.
int ps(const GlobalOptions& global, const std::optional<std::string>& tenant);
int queue(const GlobalOptions& global);
// The id of the one job that begins so, among the newest 3,000; `job_id` itself if there is none, or if it is no part of an id. Standard
// error says (`json`: as an object) where older ones were not looked at. Errors: INVALID_PARAMS for several, or what is no id;
// JOB_NOT_FOUND, which says so, for none where older ones were not looked at; those of the calls.
base::Result<std::string> whole_job_id(Api& api, const std::string& job_id, bool json);
int ls(const GlobalOptions& global);
// A model of this name, else a job.
int show(const GlobalOptions& global, const std::string& name);
int show_job(const GlobalOptions& global, const std::string& job_id);
int cancel_job(const GlobalOptions& global, const std::string& job_id);
// Those that wait or run now. What fails for one is reported with it and holds up no other; the first failure's exit code.
int cancel_jobs_of(const GlobalOptions& global, const std::string& tenant);
int clear_cache(const GlobalOptions& global);

int create_session(const GlobalOptions& global, const wire::CreateSessionRequest& request);
int list_sessions(const GlobalOptions& global);
int show_session(const GlobalOptions& global, const std::string& session_id);
int delete_session(const GlobalOptions& global, const std::string& session_id);

// Of `llorch pool ...`; each command reads what it needs.
struct PoolOptions {
  std::string pool;
  std::int64_t deadline_ms = 30'000;
  std::string model;                // to load
  std::vector<std::string> models;  // to purge; none: all
  bool idle_only = false;
  bool force = false;
  std::string credential_file;  // to write; empty: standard output
  bool wait = false;            // drain, reload: until it has ended
};
int pair_pool(const GlobalOptions& global, const PoolOptions& options);
int unpair_pool(const GlobalOptions& global, const PoolOptions& options);
int drain_pool(const GlobalOptions& global, const PoolOptions& options);
int undrain_pool(const GlobalOptions& global, const PoolOptions& options);
int reload_pool(const GlobalOptions& global, const PoolOptions& options);
int purge_pool(const GlobalOptions& global, const PoolOptions& options);
// Ends the workers of a model in every pool, once they are idle.
int stop_model(const GlobalOptions& global, const std::string& model);
int pool_health(const GlobalOptions& global, const PoolOptions& options);

int debug_snapshot(const GlobalOptions& global);
// Writes a .tar.gz, mode 0600, to `file`; empty: one in the working directory, named by the time. Nothing is written over.
int debug_bundle(const GlobalOptions& global, const std::string& file);
// Of `llorch service install`: what its `llorch up` gets.
struct ServiceOptions {
  bool cpu = false;
  std::string model;  // file, directory or alias to offer; empty: what the configuration names
};
int install_service(const GlobalOptions& global, const ServiceOptions& options);
int remove_service(const GlobalOptions& global);

struct LogsOptions {
  std::string component;     // as stack::find_logs() takes it
  bool follow = false;       // until the process is ended
  std::int64_t lines = 200;  // the newest; 0: all
};
int show_logs(const GlobalOptions& global, const LogsOptions& options);

int show_config(const GlobalOptions& global, bool changed_only);
int show_config_schema(const GlobalOptions& global);
// Has each daemon look at all that it looks at before it starts, the files with secrets among it. Errors: what they would not start
// with: CONFIG_INVALID, NON_LOOPBACK_WITHOUT_TOKEN, IO_ERROR; TIMEOUT.
base::Result<> check_config(const GlobalOptions& global);
// `file` in place of the configuration's; empty: that.
int validate_config(const GlobalOptions& global, const std::string& file);
// Asks the orchestratord of this state directory to read its configuration anew.
int reload_config(const GlobalOptions& global);

// Goes on at a terminal until the process is ended; else shows one interval.
int watch_stack(const GlobalOptions& global, std::int64_t interval_ms);

// kFailed: something is wrong with this machine or its configuration; kUsage: the URL is none that llorch asks; kUnreachable: only the
// stack does not answer.
int doctor(const GlobalOptions& global);
// What `llorch --json doctor` prints.
std::string doctor_json(const GlobalOptions& global);
int version(const GlobalOptions& global);

// Parses the command line and runs one command.
int run_cli(int argc, const char* const* argv);

}  // namespace llorch::cli
