// The command line: names, flags, help. What commands do is in the files beside this one.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <string_view>

#include "base/build_id.h"
#include "base/file.h"
#include "base/process.h"
#include "cli/bench/command.h"
#include "cli/commands.h"
#include "cli/declaration.h"
#include "cli/mistakes.h"
#include "cli/model/commands.h"
#include "cli/models/commands.h"
#include "cli/terminal_text.h"

namespace llorch::cli {
namespace {

constexpr std::int64_t kMaxTokens = 256;  // of `run`

// CLI::Range takes a NaN.
CLI::Validator real(double least, double most) {
  const CLI::Range range(least, most);
  const auto check = [range](std::string& text) -> std::string {
    double value = 0;
    const bool is_nan = CLI::detail::lexical_cast(text, value) && std::isnan(value);
    return is_nan ? fmt::format("Value {} is no number", text) : range(text);
  };
  return {check, range.get_description()};
}

// CLI11 takes the nearest number of 64 bits for others.
CLI::Validator whole_number() {
  const auto check = [](std::string& text) -> std::string {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return {};
    return fmt::format("Value {} not in range [0 - {}]", text, std::numeric_limits<std::uint64_t>::max());
  };
  return {check, ""};
}

// The common ones; the API takes all (docs/guide/sampling.md). orchestratord checks them together.
void add_sampling_options(CLI::App& prompt, RunOptions& run) {
  wire::SamplingRequest& s = run.sampling;
  prompt.add_option("--top-p", s.top_p, "Probability mass kept; 1 is off")->check(real(0.0, 1.0));
  prompt.add_option("--top-k", s.top_k, "Most likely tokens kept; 0 is off")->check(CLI::Range(0, 10'000'000));
  prompt.add_option("--min-p", s.min_p, "Least probability relative to the likeliest token; 0 is off")
      ->check(real(0.0, 1.0));
  prompt.add_option("--typical-p", s.typical_p, "Mass kept around the entropy; 1 is off")->check(real(0.0, 1.0));
  prompt.add_option("--repetition-penalty", s.repetition_penalty, "On tokens seen in prompt and answer; 1 is off")
      ->check(real(0.0, 2.0));
  prompt.add_option("--frequency-penalty", s.frequency_penalty, "Per occurrence in the answer; 0 is off")
      ->check(real(-2.0, 2.0));
  prompt.add_option("--presence-penalty", s.presence_penalty, "On tokens of the answer; 0 is off")
      ->check(real(-2.0, 2.0));
  prompt.add_option("--dry-multiplier", s.dry_multiplier, "Penalty on lengthening repeats; 0 is off")
      ->check(real(0.0, 10.0));
  prompt.add_option("--mirostat", s.mirostat, "1 or 2, instead of the cuts; 0 is off")->check(CLI::Range(0, 2));
  prompt.add_option("--stop", run.stop, "Text that ends the answer; repeatable")->allow_extra_args(false);
}

void add_verify(CLI::App& app, const GlobalOptions& global, VerifyOptions& options, int& code) {
  CLI::App* verify = app.add_subcommand(
      "verify", "Run a receipt's request again, or check a model: its files, or that it is deterministic here");
  CLI::Option* receipt =
      verify->add_option("RECEIPT", options.receipt, "A job, or a file with its receipt; - is standard input");
  verify->add_option("--model", options.run.model,
                     "Where the receipt does not say; found by its digest if it is served");
  CLI::Option* prompt = verify->add_option("--prompt", options.run.prompt, "Text; absent: standard input");
  CLI::Option* file = verify->add_option("--prompt-file", options.prompt_file, "A file with it")->excludes(prompt);
  CLI::Option* chat = verify->add_flag("--chat", options.run.chat, "The prompt is a user's message");
  verify->add_option("--system", options.run.system, "A system message before it")->needs(chat);
  CLI::Option* image =
      verify->add_option("--image", options.run.images, "PNG or JPEG file shown before it; repeatable");
  image->allow_extra_args(false);
  verify->add_option("--messages", options.run.messages, "A conversation: a file with a JSON array of messages")
      ->check(CLI::ExistingFile)
      ->excludes(prompt)
      ->excludes(file)
      ->excludes(image)
      ->excludes(chat);
  verify->add_option("--request", options.request_file, "Instead of all flags: a file with the body of POST /v2/tasks")
      ->excludes(prompt)
      ->excludes(file)
      ->excludes(image)
      ->excludes(chat);
  verify->add_option("--temperature", options.run.temperature, "0 is greedy")->check(real(0.0, 2.0));
  add_sampling_options(*verify, options.run);

  CLI::Option* files =
      verify
          ->add_option("--files", options.files,
                       "A model's name: its pool reads all of its bytes where they lie and compares the "
                       "checksum with the name's")
          ->type_name("MODEL")
          ->excludes(receipt);
  determinism::CommandOptions& matrix = options.determinism;
  CLI::Option* model = verify
                           ->add_option("--determinism", matrix.model,
                                        "A .gguf file or Hugging Face directory: run the corpus in every company, on "
                                        "every path, and compare; no daemon is needed")
                           ->type_name("MODEL")
                           ->excludes(receipt)
                           ->excludes(files);
  const auto of_matrix = [model](CLI::Option* option) { return option->needs(model)->group("With --determinism"); };
  of_matrix(verify->add_option("--device", matrix.device,
                               "cpu, cuda:N, or several that share the model as cuda:0,1; never others"))
      ->check(engine::inference::devices::check_names)
      ->capture_default_str();
  of_matrix(verify->add_option("--seeds", matrix.seeds, "Requests of the corpus; 0 is all"))
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000}));
  of_matrix(verify->add_flag("--quick", matrix.quick, "Fewer circumstances"));
  of_matrix(verify->add_option("--threads", matrix.threads, "0 is all cores; never changes a bit"))
      ->check(CLI::Range(0, 1024));
  of_matrix(verify->add_option("--kv-dtype", matrix.kv_dtype, "Element type of the KV cache"))
      ->check(CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
  verify->callback([&, receipt, files, model] {
    if (!*receipt && !*files && !*model) throw CLI::RequiredError("RECEIPT, --files MODEL or --determinism MODEL");
    if (*files) return void(code = models::verify_files(global, options.files));
    code = *model ? determinism::check_determinism(global, matrix) : verify_receipt(global, options);
  });
}

struct SessionOptions {
  wire::CreateSessionRequest create;
  std::string id;
};

void add_session_commands(CLI::App& app, const GlobalOptions& global, SessionOptions& options, int& code) {
  CLI::App* session = app.add_subcommand("session", "Budgets for a row of jobs: run --session ID");
  session->require_subcommand(1);
  CLI::App* create = session->add_subcommand("create", "Make a session, or keep one that is there from ageing");
  create->add_option("ID", options.create.session_id, "Omitted: one is drawn");
  create->add_option("--tokens", options.create.token_budget, "Prompt and generated tokens of all its jobs")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}));
  create->add_option("--time-ms", options.create.time_budget_ms, "Decode time of all its jobs")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}));
  create->add_option("--cost", options.create.cost_budget, "Cost of all its jobs")->check(real(0.000001, 1'000'000.0));
  create->callback([&] { code = create_session(global, options.create); });
  session->add_subcommand("list", "All sessions")->callback([&] { code = list_sessions(global); });
  CLI::App* show = session->add_subcommand("show", "One session, with what is left");
  show->add_option("ID", options.id)->required();
  show->callback([&] { code = show_session(global, options.id); });
  CLI::App* remove = session->add_subcommand("delete", "End a session; its running jobs run on");
  remove->add_option("ID", options.id)->required();
  remove->callback([&] { code = delete_session(global, options.id); });
}

void add_chat(CLI::App& app, const GlobalOptions& global, RunOptions& run, int& code) {
  CLI::App* chat = app.add_subcommand("chat", "Talk with a model; /help lists what else can be typed");
  chat->add_option("MODEL", run.model, "A name, a .gguf file, a Hugging Face directory, or a reference to pull")
      ->required();
  chat->add_option("--system", run.system, "A system message before all");
  chat->add_option("--image", run.images, "PNG or JPEG file shown with the first message; repeatable")
      ->allow_extra_args(false);
  chat->add_option("--max-tokens", run.max_tokens,
                   "Tokens of an answer at most; omitted: what the context has room for")
      ->check(CLI::Range(1, 1'000'000));
  chat->add_option("--temperature", run.temperature, "0 is greedy")->check(real(0.0, 2.0));
  add_sampling_options(*chat, run);
  chat->add_flag("--pull", run.pull, "Fetch the model if it is not here, without asking");
  chat->add_option("--seed", run.seed, "Same seed, same answers")->check(whole_number());
  chat->add_option("--session", run.session, "Session whose budgets the jobs take from");
  chat->add_flag("--stats", run.stats, "After each answer: queue wait, time to first token and tokens/s");
  chat->callback([&] { code = chat_with_model(global, run); });
}

struct JobOptions {
  std::string job_id;
  std::string tenant;
  std::int64_t interval_ms = 1000;  // of `top`
};
void add_job_commands(CLI::App& app, GlobalOptions& global, RunOptions& run, JobOptions& job, int& code) {
  CLI::App* prompt = app.add_subcommand("run", "Run a prompt and stream the answer; Ctrl-C cancels the job");
  prompt->add_option("MODEL", run.model, "A name, a .gguf file, a Hugging Face directory, or a reference to pull")
      ->required();
  prompt->add_option("PROMPT", run.prompt, "Text; absent: standard input, or a chat at a terminal");
  CLI::Option* chat = prompt->add_flag("--chat", run.chat, "PROMPT is a user's message for the model's chat template");
  prompt->add_option("--system", run.system, "A system message before it")->needs(chat);
  CLI::Option* suffix =
      prompt->add_option("--suffix", run.suffix, "Text that follows on the answer, of a model that fills in between")
          ->excludes(chat);
  CLI::Option* image = prompt->add_option("--image", run.images, "PNG or JPEG file shown before PROMPT; repeatable");
  image->allow_extra_args(false);
  prompt->add_option("--messages", run.messages, "A conversation: a file with a JSON array of messages")
      ->check(CLI::ExistingFile)
      ->excludes("PROMPT")
      ->excludes(suffix)
      ->excludes(image)
      ->excludes(chat);
  image->excludes(suffix);
  CLI::Option* max_tokens = prompt->add_option("--max-tokens", run.max_tokens, "Tokens to generate at most")
                                ->check(CLI::Range(1, 1'000'000))
                                ->default_str(std::to_string(kMaxTokens));
  prompt->add_option("--temperature", run.temperature, "0 is greedy")->check(real(0.0, 2.0));
  add_sampling_options(*prompt, run);
  prompt->add_option("--seed", run.seed, "Same seed, same answer")->check(whole_number());
  prompt->add_option("--priority", run.priority, "Class of the queue")
      ->check(CLI::IsMember({"interactive", "batch"}))
      ->capture_default_str();
  prompt->add_flag("--pull", run.pull, "Fetch the model if it is not here, without asking");
  prompt->add_option("--session", run.session, "Session whose budgets the job takes from");
  CLI::Option* pin = prompt->add_option("--pin-pool", run.pin_pool, "This pool and no other; no fallback");
  CLI::Option* prefer =
      prompt->add_option("--prefer-pool", run.prefer_pools, "Try this pool before the others; repeatable");
  prefer->allow_extra_args(false)->excludes(pin);
  prompt->add_option("--avoid-pool", run.avoid_pools, "Never this pool; repeatable")->allow_extra_args(false);
  prompt->add_option("--device-mask", run.device_mask,
                     "Only on the device with this gpu_id; of several that share the model 0,1");
  prompt->add_flag("--no-fallback", run.no_fallback, "Wait for a preferred pool instead of taking another")
      ->needs(prefer);
  prompt->add_flag("--stats", run.stats, "Queue wait, time to first token and tokens/s on standard error");
  prompt->callback([&global, &run, &code, max_tokens] {
    const bool at_terminal = isatty(STDIN_FILENO) != 0 && !run.prompt && !run.suffix && run.messages.empty();
    if (!at_terminal && max_tokens->empty()) run.max_tokens = kMaxTokens;
    code = at_terminal ? chat_with_model(global, run) : run_prompt(global, run);
  });
  add_chat(app, global, run, code);

  CLI::App* list = app.add_subcommand("ps", "Jobs: waiting, running, recently ended");
  CLI::Option* of_tenant = list->add_option("--tenant", job.tenant, "Of this tenant alone; for operators");
  list->callback([&, of_tenant] { code = ps(global, of_tenant->empty() ? std::nullopt : std::optional(job.tenant)); });
  app.add_subcommand("queue", "Waiting jobs in the order they will start, and what each waits for")->callback([&] {
    code = queue(global);
  });
  CLI::App* top = app.add_subcommand("top", "Queue, devices, workers and tokens/s, until Ctrl-C; in a pipe once");
  top->add_option("--interval-ms", job.interval_ms, "Between two looks")
      ->check(CLI::Range(std::int64_t{100}, std::int64_t{3'600'000}))
      ->capture_default_str();
  top->callback([&] { code = watch_stack(global, job.interval_ms); });
  app.add_subcommand("ls", "Models that can be run, and their workers")->callback([&] { code = ls(global); });
  CLI::App* cache = app.add_subcommand("cache", "The prefix caches of the workers");
  cache->require_subcommand(1);
  cache->add_subcommand("clear", "Forget what workers keep of ended prompts")->callback([&] {
    code = clear_cache(global);
  });
  CLI::App* show_command = app.add_subcommand("show", "One model, or one job with what it waits for or how it ended");
  show_command
      ->add_option("MODEL|JOB", job.job_id, "A model's name; a job's id, or as much of it as no other one begins with")
      ->required();
  show_command->callback([&] { code = show(global, job.job_id); });
  CLI::App* attach = app.add_subcommand("attach", "Stream a job from its first token; Ctrl-C leaves it running");
  attach->add_option("JOB", job.job_id, "As for `show`")->required();
  attach->callback([&] { code = attach_to_job(global, job.job_id); });
  CLI::App* cancel = app.add_subcommand("cancel", "Cancel a job, or all of a tenant that wait or run");
  cancel->add_option("JOB", job.job_id, "As for `show`");
  CLI::Option* all_of =
      cancel->add_option("--tenant", job.tenant, "All of this tenant that wait or run; for operators");
  cancel->require_option(1);
  cancel->callback(
      [&, all_of] { code = all_of->empty() ? cancel_job(global, job.job_id) : cancel_jobs_of(global, job.tenant); });
}

void add_pool_commands(CLI::App& app, const GlobalOptions& global, PoolOptions& options, int& code) {
  CLI::App* pool = app.add_subcommand("pool", "Pair, drain, reload or purge a pool, and its health");
  pool->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, int (*run)(const GlobalOptions&, const PoolOptions&)) {
    CLI::App* command = pool->add_subcommand(name, help);
    command->add_option("POOL", options.pool)->required();
    command->callback([&global, &options, &code, run] { code = run(global, options); });
    return command;
  };
  const auto deadline = [&](CLI::App* command) {
    command->add_option("--deadline-ms", options.deadline_ms, "What still runs then goes back to the queue")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}))
        ->capture_default_str();
    command->add_flag("--wait", options.wait, "Return when it has ended, with exit 1 if it did not succeed");
  };
  add("pair", "Make the credential a pool comes with; the one it had is refused", pair_pool)
      ->add_option("--out", options.credential_file, "Write it to this file, mode 0600, instead of printing it");
  add("unpair", "Refuse a pool's credential and forget the pool", unpair_pool);
  deadline(add("drain", "No more jobs; workers are stopped when they are idle", drain_pool));
  add("undrain", "Take a drain back", undrain_pool);
  CLI::App* reload =
      add("reload", "Load another model in place of what is loaded; the old one if that fails", reload_pool);
  reload->add_option("MODEL", options.model, "Alias, or file:/path")->required();
  deadline(reload);
  CLI::App* purge = add("purge", "Stop workers and free their memory", purge_pool);
  purge->add_option("--model", options.models, "Only of this model; repeatable")->allow_extra_args(false);
  CLI::Option* idle = purge->add_flag("--idle-only", options.idle_only, "Refuse if one of them is busy");
  purge->add_flag("--force", options.force, "Running jobs go back to the queue at once")->excludes(idle);
  add("health", "Live, ready, draining, memory, the last error", pool_health);
}

void add_logs(CLI::App& app, const GlobalOptions& global, LogsOptions& options, int& code) {
  CLI::App* logs = app.add_subcommand("logs", "What the daemons of `up` have written down, rotated files included");
  logs->add_option("COMPONENT", options.component,
                   "orchestratord, pool-managerd, worker-orcd for all workers, or the name of one; omitted: all");
  logs->add_flag("-f,--follow", options.follow, "Go on with what comes, until Ctrl-C");
  logs->add_option("-n,--lines", options.lines, "The newest so many; 0 is all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000}))
      ->capture_default_str();
  logs->callback([&] { code = show_logs(global, options); });
}

struct ConfigOptions {
  bool changed_only = false;
  std::string file;
};

void add_config_commands(CLI::App& app, const GlobalOptions& global, ConfigOptions& options, int& code) {
  CLI::App* config = app.add_subcommand("config", "The configuration as the daemons would read it");
  config->require_subcommand(1);
  CLI::App* show_command = config->add_subcommand("show", "Every value as --set takes it; * is not the default");
  show_command->add_flag("--changed", options.changed_only, "Only those");
  show_command->callback([&] { code = show_config(global, options.changed_only); });
  config->add_subcommand("schema", "The JSON Schema of the file")->callback([&] { code = show_config_schema(global); });
  CLI::App* validate = config->add_subcommand("validate", "Check it, with the files of secrets that it names");
  validate->add_option("FILE", options.file, "Instead of the configuration file");
  validate->callback([&] { code = validate_config(global, options.file); });
  config->add_subcommand("reload", "Have orchestratord take over tokens, tenants and their limits as they are now")
      ->callback([&] { code = reload_config(global); });
}

void add_engine_commands(CLI::App& app, const GlobalOptions& global, std::string& name, int& code) {
  CLI::App* engine = app.add_subcommand("engine", "Engines of other systems that are configured");
  engine->require_subcommand(1);
  engine->add_subcommand("list", "All of them")->callback([&] { code = list_engines(global); });
  CLI::App* plan =
      engine->add_subcommand("plan", "What would be started or asked, and what is missing; starts nothing");
  plan->add_option("NAME", name, "Of an entry of pool-managerd.engines")->required();
  plan->callback([&] { code = plan_engine(global, name); });
  CLI::App* install = engine->add_subcommand("install", "Bring its program to this machine, as `plan` says");
  install->add_option("NAME", name, "Of an entry of pool-managerd.engines")->required();
  install->callback([&] { code = install_engine(global, name); });
  CLI::App* remove = engine->add_subcommand("remove", "Remove what was installed for it");
  remove->add_option("NAME", name, "Of an entry, or of an installation that list shows as left over")->required();
  remove->callback([&] { code = remove_engine(global, name); });
}

void add_debug_commands(CLI::App& app, const GlobalOptions& global, std::string& bundle_file, int& code) {
  CLI::App* debug = app.add_subcommand("debug", "What the stack sees inside");
  debug->require_subcommand(1);
  debug->add_subcommand("snapshot", "Why waiting jobs wait: the places and workers that placement looks at")
      ->callback([&] { code = debug_snapshot(global); });
  CLI::App* bundle =
      debug->add_subcommand("bundle", "One archive for a report of a fault; no prompt, token or job's id is in it");
  bundle->add_option("-o,--output", bundle_file, "A new file; omitted: llorch-debug-TIME.tar.gz here");
  bundle->callback([&] { code = debug_bundle(global, bundle_file); });
}

void add_service_commands(CLI::App& app, const GlobalOptions& global, ServiceOptions& options, int& code) {
  CLI::App* service = app.add_subcommand("service", "The stack as a systemd service of this user, without root");
  service->require_subcommand(1);
  CLI::App* install = service->add_subcommand("install", "Write the unit, start it now and with every login");
  install->add_flag("--cpu", options.cpu, "Offer the CPU reference device");
  install->add_option("--model", options.model, "A .gguf file, a Hugging Face directory or an alias to offer");
  install->callback([&] { code = install_service(global, options); });
  service->add_subcommand("remove", "Stop it and remove the unit; state and configuration stay")->callback([&] {
    code = remove_service(global);
  });
}

// The arguments as CLI11 takes them, from the last to the first. `help COMMAND` is `COMMAND --help`.
std::vector<std::string> read_help(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  // Global options may stand before it; all but one take a value.
  std::size_t at = 0;
  while (at < words.size() && words[at].starts_with("--")) {
    at += words[at] == "--json" || words[at].find('=') != std::string::npos ? 1 : 2;
  }
  const bool is_help = at < words.size() && words[at] == "help";
  while (at < words.size() && words[at] == "help") words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
  if (is_help) words.emplace_back("--help");
  std::ranges::reverse(words);
  return words;
}

}  // namespace

int run_cli(int argc, const char* const* argv) {
  base::harden_process();         // `run` and `model tokenize` hold prompts
  std::signal(SIGPIPE, SIG_DFL);  // whoever reads our output may stop reading: end quietly

  GlobalOptions global;
  UpOptions up_options;
  RunOptions run;
  VerifyOptions verify;
  SessionOptions session;
  PoolOptions pool;
  ServiceOptions service;
  LogsOptions logs;
  ConfigOptions config;
  models::ModelOptions models;
  JobOptions job;
  int code = kOk;

  CLI::App app("llorch: run language models on your own machines", "llorch");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", base::version_text());
  app.add_option("--config", global.config_file, "Configuration file (LLORCH_CONFIG)");
  app.add_option("--set", global.set, "One configuration value, key=value; may be repeated")->allow_extra_args(false);
  app.add_option("--state-dir", global.state_dir, "Directory for run-time state (LLORCH_STATE_DIR)");
  app.add_option("--url", global.url, "Where orchestratord answers (LLORCH_URL)");
  app.add_flag("--json", global.json, "Machine-readable output");

  CLI::App* up_command = app.add_subcommand("up", "Start orchestratord and pool-managerd and keep them running");
  up_command->alias("serve");
  up_command->add_flag("--cpu", up_options.cpu, "Offer the CPU reference device");
  up_command
      ->add_option("--model", up_options.models,
                   "A .gguf file, a Hugging Face directory or a name to offer; repeatable")
      ->allow_extra_args(false);
  up_command->add_option("--engine", up_options.engine, "An engine of another system runs --model: llama.cpp")
      ->check(CLI::IsMember({"llama.cpp"}));
  up_command->add_option("--engine-binary", up_options.engine_binary,
                         "Its program (default: llama-server of PATH, else one that --install-engine has installed)");
  up_command->add_flag("--install-engine", up_options.install_engine,
                       "Install its program first, where there is none: a package that llama-orch knows and pins");
  up_command->add_flag("--detach", up_options.detach, "Return when the stack serves, and leave it running");
  up_command->callback([&] { code = up(global, up_options); });
  std::string engine_name;
  add_engine_commands(app, global, engine_name, code);
  app.add_subcommand("down", "Stop what `up` started")->callback([&] { code = down(global); });
  std::string stopped_model;
  CLI::App* stop = app.add_subcommand("stop", "Free the memory of a model; without one, stop what `up` started");
  CLI::Option* of_model = stop->add_option("MODEL", stopped_model, "Its workers finish their jobs, then end");
  // An empty MODEL is a variable of a shell that has no value, and no wish to stop everything.
  stop->callback([&, of_model] { code = of_model->empty() ? down(global) : stop_model(global, stopped_model); });
  std::string backup_file;
  CLI::App* backup = app.add_subcommand("backup", "Write the jobs to a file, whether the stack serves or not");
  backup->add_option("FILE", backup_file, "A new file; it opens the prompts of waiting jobs")->required();
  backup->callback([&] { code = copy_store(global, StoreCopy::kBackup, backup_file); });
  CLI::App* restore = app.add_subcommand("restore", "Read jobs from such a file into an empty state directory");
  restore->add_option("FILE", backup_file)->required();
  restore->callback([&] { code = copy_store(global, StoreCopy::kRestore, backup_file); });
  add_job_commands(app, global, run, job, code);
  add_session_commands(app, global, session, code);
  add_pool_commands(app, global, pool, code);
  add_verify(app, global, verify, code);
  bench::add_command(app, global, code);
  model::add_commands(app, global, code);
  models::add_commands(app, global, models, code);
  std::string bundle_file;
  add_debug_commands(app, global, bundle_file, code);
  add_logs(app, global, logs, code);
  add_config_commands(app, global, config, code);
  add_service_commands(app, global, service, code);
  app.add_subcommand("doctor", "Check this machine and the stack, and say what to do")->callback([&] {
    code = doctor(global);
  });
  app.add_subcommand("version", "Version and build id")->callback([&] { code = version(global); });
  // For packaging/generate; a group without a name is not in the help.
  app.add_subcommand("declaration", "This command line as JSON")->group("")->callback([&] {
    fmt::print("{}\n", declaration(app));
  });

  try {
    app.parse(read_help(argc, argv));
  } catch (const CLI::ParseError& e) {
    const bool is_help = e.get_exit_code() == 0 && !is_help_of_no_command(app, e);
    // What comes behind the mistake was not read.
    const bool wants_json = std::any_of(argv, argv + argc, [](std::string_view word) { return word == "--json"; });
    if (!is_help && wants_json) return report({base::ErrorCode::kInvalidParams, mistake_line(app, e), {}}, true);
    if (is_help) return app.exit(e);
    print_text(stderr, "{}", mistake_text(app, e));
    return kUsage;
  } catch (const std::exception& e) {
    return report({base::ErrorCode::kInternal, e.what(), {}}, global.json);
  }
  if (std::fflush(stdout) != 0 && code == kOk) {
    if (errno == EPIPE) return kInterrupted;  // nobody reads any more, and need not be told
    return report(base::io_error("cannot write", "standard output", errno), global.json);
  }
  return code;
}

}  // namespace llorch::cli
