#include "net/http/auth.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/assert.h"

namespace llorch::net::http {
namespace {

constexpr std::size_t kTokenCharsMin = 32;         // SEC-AUTH-4001
constexpr std::size_t kCredentialBytesMax = 8192;  // SEC-AUTH-2003
constexpr std::size_t kAddressBytesMax = 256;      // SEC-AUTH-2003
constexpr int kMissingTokenNumber = 40101;
constexpr int kBadTokenNumber = 40102;

// "1.2.3.4:80" -> "1.2.3.4", "[::1]:80" -> "::1", "::1" -> "::1"
std::string_view strip_port(std::string_view address) {
  if (address.starts_with('[')) {
    const std::size_t end = address.find(']');
    return end == std::string_view::npos ? address : address.substr(1, end - 1);
  }
  const std::size_t colon = address.find(':');
  const bool one_colon = colon != std::string_view::npos && address.find(':', colon + 1) == std::string_view::npos;
  return one_colon ? address.substr(0, colon) : address;
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The token of "Bearer <token>"; empty if the field is malformed.
std::string_view bearer_token(std::string_view field) {
  constexpr std::string_view kScheme = "Bearer ";
  if (field.size() > kCredentialBytesMax) return {};
  field = trim(field);
  if (field.size() <= kScheme.size() || !equals_ignoring_case(field.substr(0, kScheme.size()), kScheme)) return {};
  const std::string_view token = trim(field.substr(kScheme.size()));
  return token.find_first_of(" \t") == std::string_view::npos ? token : std::string_view{};
}

// The token of an X-Api-Key; empty if the field is malformed.
std::string_view api_key(std::string_view field) {
  return field.size() > kCredentialBytesMax ? std::string_view{} : trim(field);
}

}  // namespace

bool is_loopback(std::string_view address) {
  if (address.size() > kAddressBytesMax) return false;
  const std::string host(strip_port(address));
  if (equals_ignoring_case(host, "localhost")) return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

base::Result<> validate_bind(std::string_view bind_address, bool has_token) {
  if (has_token || is_loopback(bind_address)) return {};
  return base::fail(base::Error{
      base::ErrorCode::kNonLoopbackWithoutToken,
      fmt::format("binding {} would open this daemon to other machines without a token; put one of 32 "
                  "characters or more into the file that auth.token_file names, or bind 127.0.0.1",
                  bind_address),
      {}}.with("bind", std::string(bind_address)));
}

base::Result<> validate_token(std::string_view token) {
  const bool visible = std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (visible && token.size() >= kTokenCharsMin && token.size() <= kCredentialBytesMax) return {};
  return base::fail(
      base::ErrorCode::kConfigInvalid,
      fmt::format("the token must be {} to {} visible ASCII characters, it has {} bytes{}; make one with "
                  "`openssl rand -hex 32`",
                  kTokenCharsMin, kCredentialBytesMax, token.size(), visible ? "" : " and other characters"));
}

std::string token_fp6(std::string_view token) { return base::to_hex(base::sha256(token)).substr(0, 6); }

bool constant_time_equal(const base::Sha256Digest& given, const base::Sha256Digest& expected) {
  volatile std::uint8_t difference = 0;
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference = static_cast<std::uint8_t>(difference | (given[i] ^ expected[i]));
  }
  return difference == 0;
}

bool constant_time_equal(std::string_view given, std::string_view expected) {
  // Digests have one length, so neither the length nor the first difference of the token shows in the time.
  return constant_time_equal(base::sha256(given), base::sha256(expected));
}

base::Result<Credential> make_credential(std::string_view token, Role role, std::string name) {
  TRY(validate_token(token));
  const base::Sha256Digest digest = base::sha256(token);
  const std::string hex = base::to_hex(digest);
  Principal principal{.role = role, .name = std::move(name), .identity = "token:" + token_fp6(token), .account = {}};
  principal.account = principal.name.empty() ? "token:" + hex : principal.name;
  return Credential{digest, std::move(principal)};
}

Principal local_operator() {
  return {.role = Role::kOperator, .name = {}, .identity = "localhost", .account = "localhost"};
}

Principal nobody() { return {.role = Role::kReader, .name = {}, .identity = "nobody", .account = "nobody"}; }

base::Result<AuthRules> rules_of_one_token(std::string_view token, bool optional_on_loopback) {
  AuthRules rules{.optional_on_loopback = optional_on_loopback};
  if (!token.empty()) rules.credentials.push_back(TRY(make_credential(token, Role::kOperator)));
  return rules;
}

base::Result<> validate_rules(const AuthRules& rules) {
  std::set<base::Sha256Digest> known;
  for (const Credential& credential : rules.credentials) {
    if (known.insert(credential.token_sha256).second) continue;
    const std::string& name = credential.principal.name;
    return base::fail(base::ErrorCode::kConfigInvalid,
                      fmt::format("the {}{}{} has the token of another caller; make a token of its own with "
                                  "`openssl rand -hex 32`",
                                  name_of(credential.principal.role), name.empty() ? "" : " ", name));
  }
  return {};
}

namespace {

std::optional<Principal> find(const AuthRules& rules, std::string_view token) {
  if (token.empty()) return std::nullopt;
  const base::Sha256Digest digest = base::sha256(token);
  for (const Credential& credential : rules.credentials) {
    if (constant_time_equal(digest, credential.token_sha256)) return credential.principal;
  }
  return rules.find_more ? rules.find_more(digest) : std::nullopt;
}

}  // namespace

base::Result<Principal> authorize(const AuthRules& rules, const AuthInput& input) {
  ASSERT(input.headers != nullptr);
  const auto field = input.headers->get("Authorization");
  const auto key = field || !input.takes_api_key ? std::nullopt : input.headers->get("X-Api-Key");
  if ((!field && !key) || (input.always_sends_token && rules.credentials.empty())) {
    const bool open = rules.credentials.empty() || rules.optional_on_loopback;
    if (open && is_loopback(input.peer_address)) return local_operator();
    return base::fail(base::Error{
        base::ErrorCode::kMissingToken,
        "this server needs a token; send the header `Authorization: Bearer <token>`",
        {}}.with("auth_code", kMissingTokenNumber));
  }
  if (input.headers->count(key ? "X-Api-Key" : "Authorization") == 1) {
    if (auto principal = find(rules, key ? api_key(*key) : bearer_token(*field))) return std::move(*principal);
  }
  return base::fail(base::Error{
      base::ErrorCode::kBadToken,
      fmt::format(
          "the {} with a token this server knows; check that client and server are configured with the same token",
          key ? "X-Api-Key header is not one field" : "Authorization header is not `Bearer <token>`"),
      {}}.with("auth_code", kBadTokenNumber));
}

base::Result<> check_scope(Scope scope, const Principal& principal) {
  if (permits(scope, principal.role)) return {};
  return base::fail(base::Error{
      base::ErrorCode::kForbidden,
      fmt::format("this route is for callers with the scope {}, and the caller has the role {}; "
                  "send a token of a role that may use it",
                  name_of(scope), name_of(principal.role)),
      {}}.with("scope", std::string(name_of(scope)))
                        .with("role", std::string(name_of(principal.role))));
}

}  // namespace llorch::net::http
