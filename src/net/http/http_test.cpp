#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "base/entropy.h"
#include "net/http/auth.h"
#include "net/http/error_response.h"
#include "net/http/message.h"
#include "net/http/router.h"
#include "net/http/trace_context.h"
#include "net/http/url.h"

namespace llorch::net::http {
namespace {

using base::Error;
using base::ErrorCode;

const std::string kToken(32, 'a');
const base::CorrelationId kCorrelation("corr-1");

boost::json::value parsed(const Response& response) { return boost::json::parse(response.body); }

TEST(Headers, NamesIgnoreCase) {
  Headers headers{{"X-One", "1"}, {"x-one", "2"}};
  EXPECT_EQ(headers.get("X-ONE"), "1");
  EXPECT_EQ(headers.count("x-One"), 2u);
  headers.set("X-oNe", "3");
  EXPECT_EQ(headers.count("x-one"), 1u);
  EXPECT_EQ(headers.get("x-one"), "3");
  EXPECT_EQ(headers.get("X-Two"), std::nullopt);
}

constexpr std::string_view kTraceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContext, IsReadAndHandedOnWithAnotherParent) {
  const Headers given{
      {"Traceparent", std::string(kTraceparent)}, {"tracestate", "rojo=1, congo=t6"}, {"TraceState", ",x@y=2"}};
  const auto trace = trace_context(given);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_TRUE(trace->is_sampled);
  EXPECT_EQ(trace->parent_id, kTraceparent.substr(36, 16));
  base::SeededEntropy entropy(1);
  Headers next;
  set_trace_context(next, *trace, entropy);
  const std::string parent(next.get("traceparent").value());
  EXPECT_EQ(parent.size(), kTraceparent.size());
  EXPECT_EQ(parent.substr(0, 36), kTraceparent.substr(0, 36));
  EXPECT_NE(parent.substr(36, 16), kTraceparent.substr(36, 16));
  EXPECT_EQ(parent.substr(52), "-01");
  EXPECT_EQ(next.get("tracestate"), "rojo=1,congo=t6,x@y=2");
  EXPECT_EQ(trace_context(next)->trace_id, trace->trace_id);
}

TEST(TraceContext, ANewTraceIsSampledAndHasNoParent) {
  base::SeededEntropy entropy(1);
  const auto trace = new_trace(entropy);
  EXPECT_EQ(trace->trace_id.size(), 32U);
  EXPECT_TRUE(trace->is_sampled);
  EXPECT_EQ(trace->parent_id, "");
  EXPECT_NE(new_trace(entropy)->trace_id, trace->trace_id);
  Headers next;
  set_trace_context(next, *trace, entropy);
  EXPECT_EQ(trace_context(next)->trace_id, trace->trace_id) << "others read it";
}

TEST(TraceContext, AMalformedParentIsNone) {
  const std::string good(kTraceparent);
  std::string upper = good, short_flags = good, zero_trace = good, zero_parent = good, version = good, dash = good;
  upper[3] = 'A';
  short_flags.pop_back();
  zero_trace.replace(3, 32, 32, '0');
  zero_parent.replace(36, 16, 16, '0');
  version.replace(0, 2, "ff");
  dash[35] = '_';
  for (const std::string& bad :
       {upper, short_flags, zero_trace, zero_parent, version, dash, good + "-00", good + " ", std::string()}) {
    EXPECT_FALSE(trace_context({{"traceparent", bad}, {"tracestate", "a=1"}})) << bad;
  }
  EXPECT_FALSE(trace_context({}));
  EXPECT_FALSE(trace_context({{"tracestate", "a=1"}}));
  EXPECT_FALSE(trace_context({{"traceparent", good}, {"traceparent", good}}));
}

TEST(TraceContext, ALaterVersionIsReadAsTheFirst) {
  std::string later(kTraceparent);
  later.replace(0, 2, "cc");
  later.back() = '8';  // a flag that is not known
  const auto trace = trace_context({{"traceparent", later + "-what-the-future-will-be-like"}});
  ASSERT_TRUE(trace);
  EXPECT_FALSE(trace->is_sampled);
  EXPECT_FALSE(trace_context({{"traceparent", later + ".what"}}));
  base::SeededEntropy entropy(1);
  Headers next;
  set_trace_context(next, *trace, entropy);
  EXPECT_TRUE(next.get("traceparent")->starts_with("00-"));
  EXPECT_TRUE(next.get("traceparent")->ends_with("-00"));
  EXPECT_FALSE(next.get("tracestate"));
}

TEST(TraceContext, AStateIsBoundedAndOneThatIsMalformedIsNone) {
  const auto state = [](const std::string& text) {
    return trace_context({{"traceparent", std::string(kTraceparent)}, {"tracestate", text}})->state;
  };
  for (const char* bad : {"=1", "a", "A=1", "1a=1", "a=", "a=b=c", "a=\x01", "a@=1", "a@1=1", "a=1;b=2,c"}) {
    EXPECT_EQ(state(bad), "") << bad;
  }
  EXPECT_EQ(state("a=1,,b@c=2 "), "a=1,b@c=2");
  std::string many;
  for (int i = 0; i < 33; ++i) many += "k" + std::to_string(i) + "=1,";
  EXPECT_EQ(state(many), "");
  const std::string large = "large=" + std::string(200, 'x'), small = "k=" + std::string(100, 'y');
  EXPECT_EQ(state(large + "," + small), large + "," + small);
  EXPECT_EQ(state(large + "," + small + "," + large + "," + small), small + "," + small) << "the long ones go first";
  std::string row = small;
  for (int i = 0; i < 5; ++i) row += "," + small;
  EXPECT_EQ(state(row).size(), 4 * small.size() + 3);
}

// SYS-5.6.1, OC-CTRL-2052: a usable id is kept, any other is replaced.
TEST(CorrelationId, KeptOrReplaced) {
  base::SeededEntropy entropy(1);
  for (const std::string& good : {std::string("corr-accept_1"), std::string(64, 'x')}) {
    EXPECT_EQ(correlation_id_or_new(good, entropy).value, good);
  }
  for (const std::string& bad : {std::string(""), std::string(65, 'x'), std::string("a b"), std::string("a\nb")}) {
    EXPECT_TRUE(base::is_uuid(correlation_id_or_new(bad, entropy).value)) << bad;
  }
  EXPECT_TRUE(base::is_uuid(correlation_id_or_new(std::nullopt, entropy).value));
}

// SYS-5.5.1, AAPI-15060
TEST(ErrorResponse, EnvelopeShape) {
  const Response response = error_response(
      Error{ErrorCode::kInsufficientVram, "needs more", {}}.with("required_bytes", 7).with("gpu_id", std::string("0")),
      kCorrelation);
  EXPECT_EQ(response.status, 409);
  EXPECT_EQ(response.headers.get("content-type"), "application/json");
  EXPECT_EQ(parsed(response), boost::json::parse(R"({"error":{"code":"INSUFFICIENT_VRAM","message":"needs more",
      "details":{"required_bytes":7,"gpu_id":"0"},"retriable":true,"correlation_id":"corr-1"}})"));
}

// ORCH-2007, OC-CTRL-2011, ORCH-1012: the 429 contract.
TEST(ErrorResponse, BackoffOf429) {
  const Response given = error_response(Error{ErrorCode::kQueueFull, "full", {}}
                                            .with("retry_after_ms", 2500)
                                            .with("policy_label", std::string("drop-lru")),
                                        kCorrelation);
  EXPECT_EQ(given.status, 429);
  EXPECT_EQ(given.headers.get("Retry-After"), "3");
  EXPECT_EQ(given.headers.get("X-Backoff-Ms"), "2500");
  EXPECT_EQ(parsed(given), boost::json::parse(R"({"error":{"code":"QUEUE_FULL","message":"full","retriable":true,
      "retry_after_ms":2500,"policy_label":"drop-lru","correlation_id":"corr-1"}})"));

  const Response bare = error_response(Error{ErrorCode::kQueueFull, "full", {}}, kCorrelation);
  EXPECT_EQ(bare.headers.get("Retry-After"), "1");
  EXPECT_EQ(bare.headers.get("X-Backoff-Ms"), "1000");
  EXPECT_EQ(parsed(bare).at("error").at("policy_label"), "reject");
  const Response soon =
      error_response(Error{ErrorCode::kQueueFull, "full", {}}.with("retry_after_ms", 10), kCorrelation);
  EXPECT_EQ(soon.headers.get("Retry-After"), "1");

  const Response unready =
      error_response(Error{ErrorCode::kPoolUnready, "soon", {}}.with("retry_after_ms", 500), kCorrelation);
  EXPECT_EQ(unready.status, 503);
  EXPECT_EQ(unready.headers.get("Retry-After"), "1");
}

TEST(ErrorResponse, HoldsNoSecretAndStaysUtf8) {
  const Response response = error_response(
      Error{ErrorCode::kInternal, "sent Bearer abcdefgh\xff", {}}.with("url", std::string("http://u:p@h/")),
      kCorrelation);
  EXPECT_EQ(response.body.find("abcdefgh"), std::string::npos);
  EXPECT_EQ(response.body.find("u:p"), std::string::npos);
  EXPECT_EQ(parsed(response).at("error").at("message"), "sent Bearer [REDACTED]\xEF\xBF\xBD");
}

TEST(ErrorOf, ReadsWhatErrorResponseWrites) {
  const Error error = Error{ErrorCode::kQueueFull, "full", {}}
                          .with("depth", 100)
                          .with("retry_after_ms", 1500)
                          .with("policy_label", std::string("reject"));
  const Error back = error_of(error_response(error, kCorrelation));
  EXPECT_EQ(back.code, error.code);
  EXPECT_EQ(back.message, error.message);
  EXPECT_EQ(back.details, error.details);
  for (const char* body : {"", "oops", "[]", "{}", R"({"error":1})", R"({"error":{"code":5}})"}) {
    EXPECT_EQ(error_of(Response{502, {}, body}).code, ErrorCode::kInternal) << body;
  }
  EXPECT_EQ(error_of(Response{302, {}, ""}).message, "answered with HTTP status 302 and no error body");
  EXPECT_EQ(error_of(Response{500, {}, R"({"error":{"code":"FUTURE_CODE","message":"m"}})"}).message, "FUTURE_CODE: m");
}

TEST(ErrorOf, KnowsTheEnvelopesOfOtherPrograms) {
  const Response ours = error_response(Error{ErrorCode::kQueueFull, "full", {}}, kCorrelation);
  ASSERT_TRUE(own_error_of(ours));
  EXPECT_EQ(own_error_of(ours)->code, ErrorCode::kQueueFull);
  EXPECT_EQ(own_error_of(ours)->details, error_of(ours).details);
  EXPECT_EQ(own_error_of(Response{500, {}, R"({"error":{"code":5,"correlation_id":"c"}})"})->code,
            ErrorCode::kInternal);
  for (const char* body : {"", "<html>", "[]", "{}", R"({"error":1})", R"({"error":{"code":"QUEUE_FULL"}})"}) {
    EXPECT_FALSE(own_error_of(Response{502, {}, body})) << body;
  }
}

// A request that names a wildcard is refused as one of a page whose name was pointed here.
TEST(LocalUrl, NamesNoWildcard) {
  const std::pair<const char*, const char*> cases[] = {{"0.0.0.0:8080", "http://127.0.0.1:8080"},
                                                       {"[::]:8080", "http://[::1]:8080"},
                                                       {":::8080", "http://[::1]:8080"},
                                                       {"10.0.0.5:80", "http://10.0.0.5:80"},
                                                       {"[fd00::6]:9200", "http://[fd00::6]:9200"},
                                                       {"localhost:1", "http://localhost:1"},
                                                       {"127.0.0.1:65535", "http://127.0.0.1:65535"}};
  for (const auto& [bind, url] : cases) {
    EXPECT_EQ(local_url(bind), url);
    EXPECT_TRUE(parse_url(url)) << url;
  }
}

// SEC-AUTH-2004
TEST(Auth, Loopback) {
  for (const char* yes : {"127.0.0.1", "127.9.8.7", "::1", "[::1]:8080", "127.0.0.1:80", "localhost", "localhost:1",
                          "::ffff:127.0.0.1", "[::ffff:127.0.0.1]:9"}) {
    EXPECT_TRUE(is_loopback(yes)) << yes;
  }
  for (const char* no : {"", "0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "127.0.0.1.evil.org", "example.org", "[::]:80",
                         "::ffff:10.0.0.1", "1270.0.0.1"}) {
    EXPECT_FALSE(is_loopback(no)) << no;
  }
  EXPECT_FALSE(is_loopback("127.0.0.1" + std::string(300, ' ')));
}

// AUTH-1002
TEST(Auth, BindBeyondLoopbackNeedsAToken) {
  EXPECT_TRUE(validate_bind("127.0.0.1", false));
  EXPECT_TRUE(validate_bind("0.0.0.0", true));
  for (const char* bind : {"0.0.0.0", "::", "192.168.1.4"}) {
    const auto refused = validate_bind(bind, false);
    ASSERT_FALSE(refused) << bind;
    EXPECT_EQ(refused.error().code, ErrorCode::kNonLoopbackWithoutToken);
    EXPECT_NE(refused.error().message.find("auth.token_file"), std::string::npos) << "a key that there is";
  }
}

// SEC-AUTH-4001
TEST(Auth, TokenStrength) {
  EXPECT_TRUE(validate_token(kToken));
  for (const std::string& weak : {std::string(), std::string(31, 'a'), std::string(32, ' '), std::string(8193, 'a')}) {
    const auto refused = validate_token(weak);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConfigInvalid);
  }
  const auto refused = validate_token("hunter2");
  EXPECT_EQ(refused.error().message.find("hunter2"), std::string::npos);
}

// AUTH-1007, SEC-AUTH-2001, SEC-AUTH-2002
TEST(Auth, CompareAndFingerprint) {
  EXPECT_TRUE(constant_time_equal("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "bbc", "abcc"}) EXPECT_FALSE(constant_time_equal(other, "abc"));
  EXPECT_EQ(token_fp6("abc"), "ba7816");
}

struct AuthCase {
  std::optional<std::string> field;
  const char* peer;
  bool optional;
  std::string want;  // identity or code
};
Credential credential_of(std::string_view token, Role role, std::string name = {}) {
  return make_credential(token, role, std::move(name)).value();
}

// AUTH-1001, AUTH-1003, AUTH-1004, AUTH-1008, SEC-AUTH-2003, OC-CONFIG-6033
TEST(Auth, Matrix) {
  const std::string other(32, 'b');
  const std::string identity = "token:" + token_fp6(kToken);
  const std::string good = "Bearer " + kToken;
  const AuthCase cases[] = {
      {good, "10.0.0.9:1", false, identity},
      {"bearer   " + kToken + " ", "10.0.0.9:1", false, identity},
      {good, "127.0.0.1:1", true, identity},
      {std::nullopt, "10.0.0.9:1", false, "MISSING_TOKEN"},
      {std::nullopt, "127.0.0.1:1", false, "MISSING_TOKEN"},
      {std::nullopt, "127.0.0.1:1", true, "localhost"},
      {std::nullopt, "10.0.0.9:1", true, "MISSING_TOKEN"},
      {"Bearer " + other, "10.0.0.9:1", false, "BAD_TOKEN"},
      {"Bearer " + other, "127.0.0.1:1", true, "BAD_TOKEN"},
      {"Bearer", "10.0.0.9:1", false, "BAD_TOKEN"},
      {"Bearer ", "10.0.0.9:1", false, "BAD_TOKEN"},
      {"Basic " + kToken, "10.0.0.9:1", false, "BAD_TOKEN"},
      {kToken, "10.0.0.9:1", false, "BAD_TOKEN"},
      {good + " x", "10.0.0.9:1", false, "BAD_TOKEN"},
      {good + std::string(8192, ' '), "10.0.0.9:1", false, "BAD_TOKEN"},
  };
  for (const AuthCase& c : cases) {
    Headers headers;
    if (c.field) headers.add("Authorization", *c.field);
    const AuthRules rules{.credentials = {credential_of(std::string(40, 'z'), Role::kTenant, "z"),
                                          credential_of(kToken, Role::kOperator)},
                          .optional_on_loopback = c.optional};
    const auto result = authorize(rules, {&headers, c.peer});
    EXPECT_EQ(result ? result->identity : std::string(result.error().name()), c.want)
        << c.field.value_or("none") << c.peer;
    if (!result) {
      const std::int64_t number = c.want == "MISSING_TOKEN" ? 40101 : 40102;
      EXPECT_EQ(result.error().details.at(0), (std::pair<std::string, base::DetailValue>("auth_code", number)));
    }
  }
  const Headers twice{{"Authorization", good}, {"Authorization", good}};
  EXPECT_FALSE(authorize({.credentials = {credential_of(kToken, Role::kOperator)}}, {&twice, "10.0.0.9:1"}));
}

// Without a credential configured the callers of this machine are the operator, and a token that nobody gave out is wrong.
TEST(Auth, OpenOnLoopbackOnly) {
  const Headers none;
  EXPECT_EQ(authorize({}, {&none, "127.0.0.1:5"}), local_operator());
  EXPECT_EQ(authorize({}, {&none, "10.0.0.9:5"}).error().code, ErrorCode::kMissingToken);
  const Headers wrong{{"Authorization", "Bearer " + kToken}};
  EXPECT_EQ(authorize({}, {&wrong, "127.0.0.1:5"}).error().code, ErrorCode::kBadToken);
  // Clients that cannot leave a token out say nothing with theirs; elsewhere, and where there is a token, it counts.
  EXPECT_EQ(authorize({}, {&wrong, "127.0.0.1:5", true}), local_operator());
  EXPECT_EQ(authorize({}, {&wrong, "10.0.0.9:5", true}).error().code, ErrorCode::kMissingToken);
  // A header that names no token is one that was lost.
  const Headers empty{{"Authorization", "Bearer "}};
  EXPECT_EQ(authorize({}, {&empty, "127.0.0.1:5"}).error().code, ErrorCode::kBadToken);
  EXPECT_EQ(authorize({}, {&empty, "127.0.0.1:5", true}), local_operator());
  const AuthRules open{.credentials = {credential_of(std::string(40, 'o'), Role::kOperator)},
                       .optional_on_loopback = true};
  EXPECT_EQ(authorize(open, {&wrong, "127.0.0.1:5", true}).error().code, ErrorCode::kBadToken);
  EXPECT_EQ(authorize(open, {&empty, "127.0.0.1:5", true}).error().code, ErrorCode::kBadToken);
}

// A caller is who its token says, by the whole digest: two tokens whose digests begin alike are two callers.
TEST(Auth, PrincipalsAreFoundByTheWholeDigest) {
  Credential one = credential_of(kToken, Role::kTenant, "one");
  Credential two = credential_of(std::string(40, 'q'), Role::kTenant, "two");
  std::copy_n(one.token_sha256.begin(), 31, two.token_sha256.begin());
  two.token_sha256[31] = static_cast<std::uint8_t>(one.token_sha256[31] ^ 1);
  const Headers headers{{"Authorization", "Bearer " + kToken}};
  EXPECT_EQ(authorize({.credentials = {two, one}}, {&headers, "10.0.0.9:1"})->name, "one");
  EXPECT_EQ(authorize({.credentials = {two}}, {&headers, "10.0.0.9:1"}).error().code, ErrorCode::kBadToken);
  EXPECT_EQ(one.principal.account, "one");
  EXPECT_EQ(credential_of(kToken, Role::kOperator).principal.account, "token:" + base::to_hex(base::sha256(kToken)));
}

TEST(Auth, CredentialsThatComeAndGo) {
  std::optional<Principal> now;
  const AuthRules rules{.find_more = [&](const base::Sha256Digest& digest) {
    return digest == base::sha256(kToken) ? now : std::nullopt;
  }};
  const Headers headers{{"Authorization", "Bearer " + kToken}};
  EXPECT_FALSE(authorize(rules, {&headers, "127.0.0.1:1"}));
  now = Principal{.role = Role::kNode, .name = "pool-1", .identity = "token:x", .account = "pool-1"};
  EXPECT_EQ(authorize(rules, {&headers, "127.0.0.1:1"}), *now);
  now.reset();
  EXPECT_FALSE(authorize(rules, {&headers, "127.0.0.1:1"}));
}

// A key is looked at only where it is taken and no Authorization was sent, and then as a token is.
TEST(Auth, AnApiKeyIsATokenWhereItIsTaken) {
  const AuthRules rules{.credentials = {credential_of(kToken, Role::kOperator)}};
  const auto outcome = [&](const AuthRules& of, const Headers& headers, bool takes, bool always_sends = false) {
    const auto caller = authorize(of, {.headers = &headers,
                                       .peer_address = "127.0.0.1:1",
                                       .always_sends_token = always_sends,
                                       .takes_api_key = takes});
    return caller ? caller->identity : std::string(caller.error().name());
  };
  const std::string identity = "token:" + token_fp6(kToken);
  EXPECT_EQ(outcome(rules, {{"X-Api-Key", kToken}}, true), identity);
  EXPECT_EQ(outcome(rules, {{"x-api-key", " " + kToken}}, true), identity);
  EXPECT_EQ(outcome(rules, {{"X-Api-Key", kToken}}, false), "MISSING_TOKEN");
  EXPECT_EQ(outcome(rules, {{"X-Api-Key", std::string(40, 'w')}}, true), "BAD_TOKEN");
  EXPECT_EQ(outcome(rules, {{"X-Api-Key", kToken}, {"X-Api-Key", kToken}}, true), "BAD_TOKEN");
  EXPECT_EQ(outcome(rules, {{"X-Api-Key", std::string(9000, 'w')}}, true), "BAD_TOKEN");
  EXPECT_EQ(outcome(rules, {{"X-Api-Key", kToken}, {"Authorization", "Bearer " + std::string(40, 'w')}}, true),
            "BAD_TOKEN");
  EXPECT_EQ(outcome(rules, {{"X-Api-Key", "none"}, {"Authorization", "Bearer " + kToken}}, true), identity);
  EXPECT_EQ(outcome({}, {{"X-Api-Key", "none"}}, true, true), "localhost");
  EXPECT_EQ(outcome({}, {{"X-Api-Key", "none"}}, true), "BAD_TOKEN");
}

TEST(Auth, OneTokenForTwoCallersIsRefused) {
  const auto refused = validate_rules(
      {.credentials = {credential_of(kToken, Role::kOperator), credential_of(kToken, Role::kTenant, "research")}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConfigInvalid);
  EXPECT_NE(refused.error().message.find("tenant research"), std::string::npos);
  EXPECT_EQ(refused.error().message.find(kToken), std::string::npos);
}

// The whole table, row by row: open, public, reader, tenant, node, operator.
TEST(Auth, ScopesAndRoles) {
  const auto row = [](Role role) {
    std::string text;
    for (const Scope scope : kScopes) text += permits(scope, role) ? 'x' : '.';
    return text;
  };
  EXPECT_EQ(row(Role::kReader), "xxx...");
  EXPECT_EQ(row(Role::kTenant), "xx.x..");
  EXPECT_EQ(row(Role::kNode), "xx..x.");
  EXPECT_EQ(row(Role::kOperator), "xxxx.x") << "who has all the machines is still no pool of them";
  const auto refused = check_scope(Scope::kOperator, credential_of(kToken, Role::kTenant, "research").principal);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kForbidden);
  EXPECT_EQ(refused.error().details.at(0), (std::pair<std::string, base::DetailValue>("scope", "operator")));
  EXPECT_EQ(refused.error().details.at(1), (std::pair<std::string, base::DetailValue>("role", "tenant")));
}

TEST(Url, Parses) {
  const auto url = parse_url("http://127.0.0.1:9200/v2/state?x=%20y");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->host, "127.0.0.1");
  EXPECT_EQ(url->host_field, "127.0.0.1:9200");
  EXPECT_EQ(url->port, 9200);
  EXPECT_EQ(url->target, "/v2/state?x=%20y");
  EXPECT_EQ(parse_url("http://host")->target, "/");
  EXPECT_EQ(parse_url("http://host")->port, 80);
  EXPECT_EQ(parse_url("http://[::1]:8080/")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:8080/")->host_field, "[::1]:8080");
  for (const char* bad : {"", "host:80", "https://host/", "http:///x", "http://h:99999/", "http://h:0/",
                          "http://u:p@h/", "http://h/ x", "http://10.0.0.5.example:8080/x", "http://1.2.3.4a"}) {
    const auto refused = parse_url(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidParams);
  }
}

TEST(Target, DecodesAfterSplitting) {
  const auto target = parse_target("/v2/a%2Fb/%C3%A4?verbose=true&q=1%262&empty&q=3");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->segments, (std::vector<std::string>{"v2", "a/b", "\xC3\xA4"}));
  EXPECT_EQ(target->query.at("verbose"), "true");
  EXPECT_EQ(target->query.at("q"), "3");
  EXPECT_EQ(target->query.at("empty"), "");
  for (const char* bad : {"", "v2", "/%zz", "/a b", "http://x/"}) EXPECT_FALSE(parse_target(bad)) << bad;
  EXPECT_EQ(percent_encode("a/b \xC3\xA4~"), "a%2Fb%20%C3%A4~");
}

TEST(Router, LiteralsParametersMethods) {
  Router router;
  const auto list = router.add("GET", "/v2/tasks");
  const auto one = router.add("GET", "/v2/tasks/{id}");
  const auto drop = router.add("DELETE", "/v2/tasks/{id}");
  const auto all = router.add("GET", "/v2/tasks/all");
  const auto events = router.add("GET", "/v2/tasks/{id}/events");
  const auto root = router.add("GET", "/");
  using Outcome = Router::Outcome;
  const auto route = [&](const char* method, std::vector<std::string> segments) {
    const auto match = router.match(method, segments);
    return match.outcome == Outcome::kFound ? static_cast<int>(match.route) : -static_cast<int>(match.outcome);
  };
  EXPECT_EQ(route("GET", {"v2", "tasks"}), static_cast<int>(list));
  EXPECT_EQ(route("GET", {"v2", "tasks", "j1"}), static_cast<int>(one));
  EXPECT_EQ(route("DELETE", {"v2", "tasks", "j1"}), static_cast<int>(drop));
  EXPECT_EQ(route("GET", {"v2", "tasks", "all"}), static_cast<int>(all));
  EXPECT_EQ(route("DELETE", {"v2", "tasks", "all"}), static_cast<int>(drop));
  EXPECT_EQ(route("GET", {"v2", "tasks", "j1", "events"}), static_cast<int>(events));
  EXPECT_EQ(router.match("GET", {"v2", "tasks", "a/b", "events"}).params.at("id"), "a/b");
  EXPECT_EQ(router.match("GET", parse_target("/")->segments).route, root);
  for (const std::vector<std::string>& none :
       {std::vector<std::string>{"v2"}, {"v2", "tasks", ""}, {"v2", "Tasks"}, {"v2", "tasks", "a", "b"}}) {
    EXPECT_EQ(router.match("GET", none).outcome, Outcome::kNoPath);
  }
  const auto wrong = router.match("PUT", {"v2", "tasks", "j1"});
  EXPECT_EQ(wrong.outcome, Outcome::kNoMethod);
  EXPECT_EQ(wrong.allowed, "GET, HEAD, DELETE");
  EXPECT_EQ(route("HEAD", {"v2", "tasks"}), static_cast<int>(list));
}

}  // namespace
}  // namespace llorch::net::http
