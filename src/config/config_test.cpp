#include "config/config.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <map>

#include "config/port_range.h"

namespace llorch::config {
namespace {

class ConfigTest : public testing::Test {
 protected:
  ConfigTest()
      : directory_(std::filesystem::temp_directory_path() / ("llorch_config_test_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(directory_);
  }
  ~ConfigTest() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path write(const std::string& text) {
    const auto path = directory_ / "config.yaml";
    std::ofstream(path) << text;
    return path;
  }
  base::Result<Config> load(const std::string& yaml, std::map<std::string, std::string> env = {},
                            std::vector<std::pair<std::string, std::string>> overrides = {}) {
    env_ = std::move(env);
    return load_config({.file = write(yaml), .getenv = getenv(), .overrides = std::move(overrides)});
  }
  std::function<const char*(const char*)> getenv() {
    return [this](const char* name) -> const char* {
      const auto it = env_.find(name);
      return it == env_.end() ? nullptr : it->second.c_str();
    };
  }

  std::filesystem::path directory_;
  std::map<std::string, std::string> env_;
};

// SYS-11.1.1, SYS-3.1.1, SYS-8.2.2#capacity: defaults of omitted keys; home mode listens on loopback.
TEST_F(ConfigTest, DefaultsOfAnEmptyFile) {
  const Config c = load("").value();
  EXPECT_EQ(c.orchestratord.bind, "127.0.0.1:8080");
  EXPECT_EQ(c.pool_managerd.bind, "127.0.0.1:9200");
  EXPECT_FALSE(c.pool_managerd.orchestrator_url) << "follows orchestratord.bind";
  EXPECT_EQ(c.orchestratord.queue.capacity, 100);
  EXPECT_EQ(c.orchestratord.queue.policy, QueuePolicy::kReject);
  EXPECT_EQ(c.orchestratord.timeout.default_ms, 300000);
  EXPECT_FALSE(c.devices.allow_cpu);
}

// OC-ADAPT-OAI-6021#egress: nothing leaves this machine in clear unless the file says that it may.
TEST_F(ConfigTest, EnginesBeyondThisMachineNeedTls) {
  const auto with = [&](const std::string& endpoint, const std::string& more = "") {
    return load("pool-managerd:\n  engines:\n    - {name: e, engine: openai, endpoint: \"" + endpoint + "\"" + more +
                "}\n");
  };
  for (const char* here :
       {"http://127.0.0.1:8000", "http://localhost:8000/v1", "http://[::1]:8000", "http://127.0.0.1"}) {
    EXPECT_TRUE(with(here)) << here;
  }
  EXPECT_TRUE(with("https://api.example/v1"));
  for (const char* beyond :
       {"http://10.0.0.5:8000", "http://127.0.0.1.example/", "http://localhost.example", "http://127.evil"}) {
    EXPECT_FALSE(with(beyond)) << beyond;
    EXPECT_TRUE(with(beyond, ", plain_http: true")) << beyond;
  }
  EXPECT_FALSE(with("https://user:key@api.example"));
  EXPECT_FALSE(with("ftp://api.example"));
}

// OC-ADAPT-5060#grpc OC-ADAPT-OAI-6021#egress: gRPC is Triton's alone, and in clear it stays here as HTTP does.
TEST_F(ConfigTest, TritonAloneSpeaksGrpc) {
  const auto with = [&](const std::string& engine, const std::string& endpoint, const std::string& more = "") {
    return load("pool-managerd:\n  engines:\n    - {name: e, engine: " + engine + ", endpoint: \"" + endpoint + "\"" +
                more + "}\n");
  };
  EXPECT_TRUE(with("triton", "grpc://127.0.0.1:8001"));
  EXPECT_TRUE(with("triton", "grpcs://triton.example:8001"));
  EXPECT_FALSE(with("triton", "grpc://10.0.0.5:8001"));
  EXPECT_TRUE(with("triton", "grpc://10.0.0.5:8001", ", plain_http: true"));
  EXPECT_FALSE(with("triton", "grpc://127.0.0.1:8001/v2"));
  for (const char* other : {"llamacpp", "openai", "tgi", "vllm"}) {
    EXPECT_FALSE(with(other, "grpc://127.0.0.1:8001")) << other;
    EXPECT_FALSE(with(other, "grpcs://triton.example:8001")) << other;
  }
}

// A name that nobody reads would be a setting without effect.
TEST_F(ConfigTest, FieldNamesAreOfOpenAiAlone) {
  const auto with = [&](const std::string& engine, const std::string& names) {
    return load("pool-managerd:\n  engines:\n    - {name: e, engine: " + engine +
                ", endpoint: \"http://127.0.0.1:1\", field_names: {" + names + "}}\n");
  };
  const auto set = with("openai", "max_tokens: max_completion_tokens, seed: random_seed");
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->pool_managerd.engines[0].field_names.at("seed"), "random_seed");
  EXPECT_FALSE(with("vllm", "seed: random_seed"));
  EXPECT_FALSE(with("openai", "model: m"));
  EXPECT_FALSE(with("openai", "seed: \"a b\""));
}

// OC-CONFIG-6021: an engine is one of those that are known, and its version and source are pinned
TEST_F(ConfigTest, EnginesAreWhole) {
  const auto with = [&](const std::string& entry) { return load("pool-managerd:\n  engines: [" + entry + "]\n"); };
  EXPECT_TRUE(
      with("{name: e, engine: llamacpp, endpoint: \"http://127.0.0.1:{port}\", command: [/bin/x], device: cpu}"));
  EXPECT_FALSE(with("{name: e, engine: gpt, endpoint: \"http://127.0.0.1:1\"}"));
  EXPECT_FALSE(with("{name: e e, engine: vllm, endpoint: \"http://127.0.0.1:1\"}"));
  EXPECT_FALSE(with("{name: e, engine: vllm, endpoint: \"http://127.0.0.1:1\", device: cpu}"));
  EXPECT_FALSE(with("{name: e, engine: vllm, endpoint: \"http://127.0.0.1:1\", command: [x], device: cpu}"));
  EXPECT_FALSE(with("{name: e, engine: vllm, endpoint: \"https://h\", command: [/x], device: cpu}"));
  const auto installed = [&](const std::string& provisioning) {
    return with(
        "{name: e, engine: llamacpp, endpoint: \"http://127.0.0.1:{port}\", command: [\"{engine}/bin/x\"], device: "
        "cpu, "
        "provisioning: {" +
        provisioning + "}}");
  };
  const auto pinned = installed("mode: binary, version: b6000, binary: {url: \"https://h/x.tgz\", checksum: \"sha256:" +
                                std::string(64, 'a') + "\"}");
  ASSERT_TRUE(pinned);
  EXPECT_EQ(pinned->pool_managerd.engines[0].provisioning.version, "b6000");
  EXPECT_FALSE(pinned->pool_managerd.provisioning.allow_binary_downloads);
  EXPECT_FALSE(installed("mode: binary, binary: {url: \"https://h/x.tgz\"}"));
  EXPECT_FALSE(installed("mode: wish"));
  const std::string one = "{name: e, engine: vllm, endpoint: \"http://127.0.0.1:1\"}";
  EXPECT_FALSE(with(one + ", " + one));
  EXPECT_TRUE(load("models: {aliases: {m: \"engine:e\"}}\n"));
  // A list of entries as one value.
  const auto set =
      load("", {}, {{"pool-managerd.engines", R"([{"name":"e","engine":"tgi","endpoint":"http://127.0.0.1:1"}])"}});
  ASSERT_TRUE(set);
  EXPECT_EQ(set->pool_managerd.engines[0].engine, "tgi");
}

// SYS-11.1.1: flags beat environment beats file beats defaults.
TEST_F(ConfigTest, Precedence) {
  const std::string yaml = "orchestratord:\n  queue: {capacity: 7}\n  bind: 127.0.0.1:1\n  worker_slots: 2\n";
  const Config c =
      load(yaml, {{"LLORCH_ORCHESTRATORD_QUEUE_CAPACITY", "8"}, {"LLORCH_ORCHESTRATORD_BIND", "127.0.0.1:2"}},
           {{"orchestratord.bind", "127.0.0.1:3"},
            {"models.aliases.demo", "file:/m.gguf"},
            {"models.aliases.Qwen2.5-0.5B.Q4_K_M", "file:/q.gguf"},
            {"models.tensor_split.demo", "2"},
            {"models.timeout_ms.demo", "900000"},
            {"models.chat_format.demo", "hermes"},
            {"devices.allow_cpu", "true"}})
          .value();
  EXPECT_EQ(c.orchestratord.worker_slots, 2);
  EXPECT_EQ(c.orchestratord.queue.capacity, 8);
  EXPECT_EQ(c.orchestratord.bind, "127.0.0.1:3");
  EXPECT_EQ(c.models.aliases.at("demo"), "file:/m.gguf");
  EXPECT_EQ(c.models.aliases.at("Qwen2.5-0.5B.Q4_K_M"), "file:/q.gguf");
  EXPECT_EQ(c.models.tensor_split.at("demo"), 2);
  EXPECT_EQ(c.models.timeout_ms.at("demo"), 900'000);
  EXPECT_EQ(c.models.chat_format.at("demo"), "hermes");
  EXPECT_TRUE(c.devices.allow_cpu);
}

TEST_F(ConfigTest, PortsOfWorkersAreARange) {
  EXPECT_EQ(load("").value().pool_managerd.worker_ports, "");
  for (const char* text : {"42000-42099", "1-65535", "9000-9000"}) {
    const auto result = load(std::string("pool-managerd: {worker_ports: ") + text + "}");
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->pool_managerd.worker_ports, text);
  }
  const auto range = parse_port_range("42000-42099");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 42000);
  EXPECT_EQ(range->last, 42099);
}

// OC-CONFIG-6001: unknown keys and impossible values are refused, and the message names the key.
TEST_F(ConfigTest, RefusalsNameTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"orchestratord: {qeue: {}}", "orchestratord.qeue"},
      {"orchestratord: {queue: {capacity: many}}", "orchestratord.queue.capacity"},
      {"orchestratord: {queue: {capacity: -1}}", "capacity -1"},
      {"orchestratord: {queue: {capacity: 0}}", "at least 1"},
      {"orchestratord: {timeout: {default_ms: 10, max_ms: 5}}", "timeout.default_ms"},
      {"orchestratord: {bind: nowhere}", "orchestratord.bind"},
      {"orchestratord: {scheduling: {algorithm: lucky}}", "least-loaded"},
      {"pool-managerd: {pool_id: 'a b'}", "pool-managerd.pool_id"},
      {"pool-managerd: {worker_ports: 42000}", "pool-managerd.worker_ports"},
      {"pool-managerd: {worker_ports: 0-9}", "from 1 to 65535"},
      {"pool-managerd: {worker_ports: 42099-42000}", "e.g. 42000-42099"},
      {"pool-managerd: {worker_ports: 42000-65536}", "pool-managerd.worker_ports"},
      {"pool-managerd: {worker_ports: '42000-42099 '}", "pool-managerd.worker_ports"},
      {"models: {aliases: {x: relative.gguf}}", "models.aliases"},
      {"models: {allowed_roots: [/a, b]}", "models.allowed_roots"},
      {"models: {tensor_split: {x: 2}}", "models.tensor_split"},
      {"models: {tensor_split: {'file:/m': 0}}", "1 to 16"},
      {"models: {tensor_split: {'file:/m': two}}", "models.tensor_split.file:/m"},
      {"models: {aliases: {x: 'file:/m'}, tensor_split: {x: 2, 'file:/m': 4}}", "two values"},
      {"models: {timeout_ms: {x: 2}}", "models.timeout_ms"},
      {"models: {chat_format: {x: hermes}}", "models.chat_format"},
      {"models: {aliases: {x: 'file:/m'}, chat_format: {x: hermes, 'file:/m': phi}}", "two values"},
      {"models: {timeout_ms: {'file:/m': 0}}", "1 to 86400000"},
      {"models: {timeout_ms: {'file:/m': 1800001}}", "orchestratord.timeout.max_ms"},
      {"log: {level: loud}", "trace, debug, info, warn, error, fatal, mute"},
      {"orchestratord: {tenants: [{id: a}]}", "token_file"},
      {"orchestratord: {tenants: [{id: localhost, token_file: f}]}", "tenants[].id"},
      {"orchestratord: {tenants: [{id: nobody, token_file: f}]}", "tenants[].id"},
      {"orchestratord: {tenants: [{id: a, token_file: f}, {id: a, token_file: g}]}", "two entries with the id a"},
      {"orchestratord: {persistence: {retention_bytes: 1000}}", "retention_bytes"},
      {"[1, 2]", "mapping"},
      {"a: [", "YAML"},
  };
  for (const auto& [yaml, part] : cases) {
    const auto result = load(yaml);
    ASSERT_FALSE(result.has_value()) << yaml;
    EXPECT_EQ(result.error().code, base::ErrorCode::kConfigInvalid) << yaml;
    EXPECT_NE(result.error().message.find(part), std::string::npos) << yaml << " -> " << result.error().message;
  }
  EXPECT_FALSE(load("", {}, {{"no.such.key", "1"}}).has_value());
  EXPECT_FALSE(load_config({.file = directory_ / "absent.yaml"}).has_value());
}

// As programs send them, whose windows are pages: each can be listed but the one that any sandboxed page has.
TEST_F(ConfigTest, OriginsOfProgramsAreListed) {
  const std::vector<std::string> programs{"https://chat.example", "app://obsidian.md", "file://",
                                          "vscode-webview://1f2a",
                                          "chrome-extension://abcdefghijklmnopabcdefghijklmnop"};
  std::string text;
  for (const std::string& program : programs) text += (text.empty() ? "" : ",") + program;
  const auto listed = load("", {}, {{"orchestratord.cors_origins", text}});
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_EQ(listed->orchestratord.cors_origins, programs);
  EXPECT_EQ(load("orchestratord: {cors_origins: ['file://', 'app://-']}").value().orchestratord.cors_origins,
            (std::vector<std::string>{"file://", "app://-"}));
  for (const char* none :
       {"'null'", "'*'", "'chrome-extension://*'", "'tauri://localhost/'", "obsidian.md", "'app://a\"b'"}) {
    const auto refused = load(std::string("orchestratord: {cors_origins: [") + none + "]}");
    ASSERT_FALSE(refused) << none;
    EXPECT_NE(refused.error().message.find("orchestratord.cors_origins"), std::string::npos) << none;
  }
}

// A service whose file was renamed would serve everybody on the machine as the operator.
TEST_F(ConfigTest, AFileThatTheEnvironmentNamesIsThere) {
  const auto absent = (directory_ / "absent.yaml").string();
  env_ = {{"LLORCH_CONFIG", absent}};
  const auto refused = load_config({.file = {}, .getenv = getenv(), .overrides = {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kConfigInvalid);
  for (const std::string& part : {absent, std::string("LLORCH_CONFIG")}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
  EXPECT_TRUE(load("", {{"LLORCH_CONFIG", absent}})) << "another file goes before it";
  env_ = {{"LLORCH_CONFIG", write("log: {level: warn}").string()}};
  EXPECT_EQ(load_config({.file = {}, .getenv = getenv(), .overrides = {}}).value().log.level, "warn");
}

// SYS-11.1.1: a message blames the source the value came from.
TEST_F(ConfigTest, RefusalsNameTheSource) {
  const auto message = [&](std::map<std::string, std::string> env,
                           std::vector<std::pair<std::string, std::string>> set) {
    return load("log: {level: info}", std::move(env), std::move(set)).error().message;
  };
  EXPECT_TRUE(message({{"LLORCH_LOG_LEVEL", "loud"}}, {}).starts_with("LLORCH_LOG_LEVEL: "));
  EXPECT_TRUE(message({}, {{"log.level", "loud"}}).starts_with("--set log.level: "));
  EXPECT_TRUE(message({{"LLORCH_LOG_LEVEL", "loud"}}, {{"log.level", "shrill"}}).starts_with("--set log.level: "));
  EXPECT_TRUE(
      message({}, {{"orchestratord.queue.capacity", "many"}}).starts_with("--set orchestratord.queue.capacity: "));
  // Rules across fields, and entries below a key.
  EXPECT_TRUE(message({}, {{"orchestratord.queue.capacity", "0"}}).starts_with("--set orchestratord.queue.capacity: "));
  EXPECT_TRUE(message({}, {{"models.allowed_roots", "x"}}).starts_with("--set models.allowed_roots: "));
  EXPECT_TRUE(message({}, {{"models.aliases.demo", "x"}}).starts_with("--set models.aliases.demo: "));
  // A good override is not blamed for a bad file.
  const auto file = load("log: {level: loud}", {}, {{"orchestratord.queue.capacity", "7"}});
  EXPECT_TRUE(file.error().message.starts_with(directory_.string())) << file.error().message;
}

TEST_F(ConfigTest, EmptySectionsAndListElements) {
  const Config c = load("orchestratord:\n  queue:\nmodels:\n  aliases:\n").value();
  EXPECT_EQ(c.orchestratord.queue.capacity, 100);
  EXPECT_TRUE(c.models.aliases.empty());
  const Config roots = load("", {}, {{"models.allowed_roots", ",/a,,/b,"}}).value();
  EXPECT_EQ(roots.models.allowed_roots, (std::vector<std::string>{"/a", "/b"}));
}

// OC-CONFIG-6031: the schema has examples: this machine only, a network with tokens, behind a proxy. Each is a file that loads.
TEST_F(ConfigTest, ExamplesOfTheSchemaLoad) {
  const auto schema = boost::json::parse(config_json_schema());
  const auto& examples = schema.at("examples").as_array();
  ASSERT_EQ(examples.size(), 3U);
  std::vector<Config> loaded;
  for (const auto& example : examples) {
    const std::string text = boost::json::serialize(example);
    auto config = load(text);  // JSON is YAML
    ASSERT_TRUE(config) << text << ": " << config.error().message;
    loaded.push_back(std::move(*config));
  }
  EXPECT_TRUE(loaded[0].auth.token_file.empty() && loaded[0].orchestratord.bind.starts_with("127.0.0.1"));
  EXPECT_FALSE(loaded[1].auth.token_file.empty() || loaded[1].orchestratord.bind.starts_with("127.0.0.1"));
  EXPECT_EQ(loaded[1].orchestratord.tenants.at(0).quotas->token_budget_daily, 5000000);
  EXPECT_TRUE(!loaded[2].auth.token_file.empty() && loaded[2].orchestratord.bind.starts_with("127.0.0.1"));
}

// OC-CONFIG-6010: the schema is deterministic.
// What a reload names: every key, at any depth, once, whatever bytes its value has.
TEST_F(ConfigTest, TellsWhichKeysDiffer) {
  const Config before = load("models: {aliases: {a: file:/a.gguf}}").value();
  EXPECT_TRUE(changed_keys(before, before).empty());
  Config after =
      load(
          "orchestratord: {queue: {capacity: 7}, tenants: [{id: a, token_file: /t}], worker_context_tokens: 64}\n"
          "auth: {token_file: /o}\nmodels: {aliases: {a: file:/b.gguf, b: file:/b.gguf}}")
          .value();
  after.models.cache_dir = "/\xff";
  const std::vector<std::string> keys{"auth.token_file",       "models.aliases",
                                      "models.cache_dir",      "orchestratord.queue.capacity",
                                      "orchestratord.tenants", "orchestratord.worker_context_tokens"};
  for (auto changed : {changed_keys(before, after), changed_keys(after, before)}) {
    std::ranges::sort(changed);
    EXPECT_EQ(changed, keys);
  }
}

TEST(ConfigSchema, IsDeterministic) { EXPECT_EQ(config_json_schema(), config_json_schema()); }

// SEC-AUTH-4001: a token has at least 32 characters and comes from a file that only its owner can read.
TEST_F(ConfigTest, ApiToken) {
  Config c;
  env_ = {};
  EXPECT_EQ(load_api_token(c, getenv()).value(), "");
  env_ = {{"LLORCH_API_TOKEN", "short"}};
  EXPECT_FALSE(load_api_token(c, getenv()).has_value());
  c.auth.token_file = write(std::string(40, 'x') + "\n");
  ::chmod(c.auth.token_file.c_str(), 0644);
  EXPECT_FALSE(load_api_token(c, getenv()).has_value());
  ::chmod(c.auth.token_file.c_str(), 0600);
  EXPECT_EQ(load_api_token(c, getenv()).value(), std::string(40, 'x'));
}

// chmod 600 of /tmp would be bad advice.
TEST_F(ConfigTest, ASecretsFileIsRegular) {
  for (const std::string& path : {directory_.string(), std::string("/dev/zero")}) {
    const auto refused = read_secret(path);
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().code, base::ErrorCode::kConfigInvalid);
    EXPECT_NE(refused.error().message.find("no regular file"), std::string::npos) << refused.error().message;
    EXPECT_EQ(refused.error().message.find("chmod"), std::string::npos) << refused.error().message;
  }
}

TEST_F(ConfigTest, WhoMayNotReadASecretLearnsWhoseItIs) {
  if (::geteuid() != 0) GTEST_SKIP() << "root alone becomes another user";
  const uid_t owner = 54321, reader = 54322;
  const std::string file = write(std::string(40, 'x') + "\n");
  ASSERT_EQ(::chown(file.c_str(), owner, owner) | ::chmod(file.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(reader, reader, reader) != 0) ::_exit(3);
    const auto read = read_secret(file);
    const std::string message = read ? "" : read.error().message;
    const bool says = message.find("a file of user 54321, and user 54322 runs this") != std::string::npos &&
                      message.find("chown USER " + file) != std::string::npos;
    ::_exit(says ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// SYS-9.3.2: tenants are told apart by tokens of their own.
TEST_F(ConfigTest, TenantTokens) {
  const auto secret = [&](const std::string& name, char c) {
    const auto path = directory_ / name;
    std::ofstream(path) << std::string(32, c) << "\n";
    ::chmod(path.c_str(), 0600);
    return path.string();
  };
  const std::string token(32, 'o');
  Config c =
      load(fmt::format("orchestratord:\n  tenants:\n    - {{id: a, token_file: {}, quotas: {{max_concurrent_jobs: "
                       "2}}}}\n    - {{id: b, token_file: {}}}\n",
                       secret("a", 'a'), secret("b", 'b')))
          .value();
  EXPECT_EQ(c.orchestratord.tenants[0].quotas->max_concurrent_jobs, 2);
  EXPECT_FALSE(c.orchestratord.tenants[0].quotas->token_budget_daily) << "left out is not 0";
  EXPECT_FALSE(c.orchestratord.tenants[1].quotas);
  const auto tokens = load_tenant_tokens(c, token).value();
  ASSERT_EQ(tokens.size(), 2U);
  EXPECT_EQ(tokens[1].tenant_id, "b");
  EXPECT_EQ(tokens[1].token, std::string(32, 'b'));
  EXPECT_FALSE(load_tenant_tokens(c, ""));                    // nobody could run a pool
  EXPECT_FALSE(load_tenant_tokens(c, std::string(32, 'a')));  // whose call would it be?
  secret("b", 'a');
  EXPECT_FALSE(load_tenant_tokens(c, token));
  ::chmod((directory_ / "b").c_str(), 0644);
  EXPECT_FALSE(load_tenant_tokens(c, token));
  EXPECT_TRUE(load_tenant_tokens(Config{}, "").value().empty());
}

// A connection string may hold a password: it is in a file of its own and never in the configuration.
TEST_F(ConfigTest, PostgresqlConnection) {
  Config c = load("orchestratord:\n  persistence:\n    store: postgresql\n").value();
  EXPECT_EQ(c.orchestratord.persistence.store, StoreKind::kPostgresql);
  EXPECT_EQ(load_postgresql_connection(c).value(), "");
  std::string& file = c.orchestratord.persistence.postgresql.connection_file;
  file = write("host=db password=needle\n");
  ::chmod(file.c_str(), 0640);
  ASSERT_FALSE(load_postgresql_connection(c));
  EXPECT_EQ(load_postgresql_connection(c).error().message.find("needle"), std::string::npos);
  ::chmod(file.c_str(), 0600);
  EXPECT_EQ(load_postgresql_connection(c).value(), "host=db password=needle");
}

// Where a secret lies is nobody's to read; everything else reads back as it is.
TEST_F(ConfigTest, RedactedJson) {
  Config c =
      load(
          "orchestratord:\n  queue: {capacity: 17}\n  hosts: [llm.example]\n  tenants:\n"
          "    - {id: a, token_file: /needle/a}\n  persistence: {postgresql: {connection_file: /needle/b}}\n"
          "pool-managerd: {credential_file: /needle/c}\n"
          "auth: {token_file: /needle/d, reader_token_files: [/needle/e, /needle/f]}\n"
          "models: {pull: {hub_token_file: /needle/g, s3_key_file: /needle/h, proxy: 'http://me:needle@proxy:3128'}}\n")
          .value();
  const std::string text = redacted_json(c);
  EXPECT_EQ(text.find("needle"), std::string::npos) << text;
  EXPECT_EQ(redacted_json(Config{}).find("(a file)"), std::string::npos) << "none is named";
  const auto path = write(text);
  const Config again = load_config({.file = path, .getenv = {}, .overrides = {}}).value();
  EXPECT_EQ(again.orchestratord.queue.capacity, 17);
  EXPECT_EQ(again.orchestratord.hosts, c.orchestratord.hosts);
  EXPECT_EQ(again.orchestratord.tenants.at(0).token_file, "(a file)");
  EXPECT_EQ(again.auth.reader_token_files, (std::vector<std::string>{"(a file)", "(a file)"}));
}

}  // namespace
}  // namespace llorch::config
