#pragma once
// Who may be asked for models: the outbound policy. Pure.
#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::pool_managerd::provisioner::web {

struct EgressPolicy {
  bool enabled = false;
  std::vector<std::string> allowed_hosts;  // "host" or ".domain"; empty: every host with a public address, by https

  // Whether `allowed_hosts` lists `host`, in lower case.
  bool names(std::string_view host) const;
};

// Where a URL leads, as the library that opens the connection reads it.
struct Address {
  std::string scheme;  // http or https
  std::string host;    // lower case, without brackets
  std::string origin;  // scheme://host:port
};
// Errors: INVALID_PARAMS (no http or https URL, or one with a user name in it).
base::Result<Address> address_of(const std::string& url);
// `reference`, as a page at `base` means it. Errors: INVALID_PARAMS.
base::Result<std::string> resolve_url(const std::string& base, const std::string& reference);
// `url` without query and fragment, which may hold signatures: for logs and listings.
std::string without_query(std::string_view url);

// Errors: FORBIDDEN, details.reason "egress" and details.host.
base::Result<> check_egress(const EgressPolicy& policy, const Address& address);
// Neither loopback, private, link-local, multicast nor reserved.
bool is_public(const sockaddr& address);

}  // namespace llorch::pool_managerd::provisioner::web
