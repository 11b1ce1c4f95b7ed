#pragma once
// What has to work before an adapter says that it is ready (ORCH-3049): a short answer, a cancel, the metrics.
#include <string>

#include "base/result.h"
#include "net/client.h"

namespace llorch::adapter {

struct SelfTestServer {
  std::string url;  // of this adapter
  std::string bearer;
  bool may_lack_prompts = false;  // its engine may take messages alone
};
// Blocks. Errors: SELF_TEST_FAILED, with what the engine made of it. REQUIRES: not on the io thread.
base::Result<> self_test(net::Client& client, const SelfTestServer& server, std::int64_t timeout_ms);

}  // namespace llorch::adapter
