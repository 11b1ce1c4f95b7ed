#pragma once
// What every user of libcurl needs of it once.
#include <curl/curl.h>

#include <mutex>

#include "base/assert.h"

namespace llorch::base {

inline void init_curl_once() {
  static std::once_flag once;
  std::call_once(once, [] { ASSERT(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl does not start"); });
}

// Whether there was no trusted connection, whoever is to blame.
inline bool is_tls_failure(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CONNECT_ERROR || code == CURLE_SSL_CERTPROBLEM ||
         code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR;
}

}  // namespace llorch::base
