#include "pool_managerd/provisioner/web/egress.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fmt/core.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <memory>

namespace llorch::pool_managerd::provisioner::web {
namespace {

using base::ErrorCode;

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using UrlPtr = std::unique_ptr<CURLU, UrlDeleter>;

base::Result<std::string> part_of(const UrlPtr& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return base::fail(ErrorCode::kInvalidParams, "no part");
  std::string out(text);
  curl_free(text);
  return out;
}

base::Result<UrlPtr> parsed(const std::string& text) {
  UrlPtr url(curl_url());
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return base::fail(ErrorCode::kInvalidParams, "this is not a valid http or https URL");
  }
  return url;
}

struct Ipv4Block {
  std::uint32_t network;
  unsigned bits;
};
// Special-purpose blocks (RFC 6890), multicast and reserved ones.
constexpr std::array kNotPublic{Ipv4Block{0x00000000, 8},  Ipv4Block{0x0a000000, 8},  Ipv4Block{0x64400000, 10},
                                Ipv4Block{0x7f000000, 8},  Ipv4Block{0xa9fe0000, 16}, Ipv4Block{0xac100000, 12},
                                Ipv4Block{0xc0000000, 24}, Ipv4Block{0xc0a80000, 16}, Ipv4Block{0xc6120000, 15},
                                Ipv4Block{0xe0000000, 3}};

bool is_public_v4(std::uint32_t address) {
  return std::none_of(kNotPublic.begin(), kNotPublic.end(), [&](const Ipv4Block& block) {
    return (address >> (32 - block.bits)) == (block.network >> (32 - block.bits));
  });
}

}  // namespace

bool EgressPolicy::names(std::string_view host) const {
  return std::any_of(allowed_hosts.begin(), allowed_hosts.end(), [&](const std::string& allowed) {
    return allowed.starts_with('.') ? host.ends_with(allowed) : host == allowed;
  });
}

base::Result<Address> address_of(const std::string& text) {
  const UrlPtr url = TRY(parsed(text));
  Address out;
  out.scheme = TRY(part_of(url, CURLUPART_SCHEME));
  out.host = TRY(part_of(url, CURLUPART_HOST));
  if (part_of(url, CURLUPART_USER) || part_of(url, CURLUPART_PASSWORD)) {
    return base::fail(ErrorCode::kInvalidParams, "a URL with a user name or password in it is not followed");
  }
  if (out.scheme != "https" && out.scheme != "http") {
    return base::fail(ErrorCode::kInvalidParams, "only http and https URLs can be fetched");
  }
  std::transform(out.host.begin(), out.host.end(), out.host.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string port = TRY(part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT));
  out.origin = fmt::format("{}://{}:{}", out.scheme, out.host, port);
  if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

base::Result<std::string> resolve_url(const std::string& base, const std::string& reference) {
  const UrlPtr url = TRY(parsed(base));
  if (curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK) {
    return base::fail(ErrorCode::kInvalidParams, "the server names a URL that is none");
  }
  return part_of(url, CURLUPART_URL);
}

std::string without_query(std::string_view url) { return std::string(url.substr(0, url.find_first_of("?#"))); }

base::Result<> check_egress(const EgressPolicy& policy, const Address& address) {
  const auto refuse = [&](std::string message) -> base::Result<> {
    return base::fail(base::Error{ErrorCode::kForbidden, std::move(message), {}}
                          .with("reason", std::string("egress"))
                          .with("host", address.host));
  };
  if (!policy.enabled) return refuse("models.pull.policy is off: this node asks nobody for models");
  if (policy.names(address.host)) return {};
  if (!policy.allowed_hosts.empty()) {
    return refuse(fmt::format("{} is not one of models.pull.allowed_hosts", address.host));
  }
  if (address.scheme == "https") return {};
  return refuse(fmt::format("{} would be asked without TLS; if that is meant, list it in models.pull.allowed_hosts",
                            address.host));
}

bool is_public(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return is_public_v4(ntohl(in.sin_addr.s_addr));
  }
  if (address.sa_family != AF_INET6) return false;
  sockaddr_in6 in{};
  std::memcpy(&in, &address, sizeof in);
  const std::uint8_t* bytes = in.sin6_addr.s6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
    return is_public_v4(std::uint32_t{bytes[12]} << 24 | std::uint32_t{bytes[13]} << 16 |
                        std::uint32_t{bytes[14]} << 8 | bytes[15]);
  }
  return (bytes[0] & 0xe0) == 0x20;  // 2000::/3, the global unicast addresses
}

}  // namespace llorch::pool_managerd::provisioner::web
