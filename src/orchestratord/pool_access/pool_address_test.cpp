#include "orchestratord/pool_access/pool_address.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::pool_access {
namespace {

wire::PoolState state(std::string endpoint, std::string worker_uri = {}) {
  wire::PoolState out{.pool_id = "p", .endpoint = std::move(endpoint)};
  if (!worker_uri.empty()) out.workers.push_back({.worker_id = "w", .uri = std::move(worker_uri)});
  return out;
}

std::string reason(const base::Result<>& result) {
  if (result) return "taken";
  for (const auto& [key, value] : result.error().details) {
    if (key == "reason") return std::get<std::string>(value);
  }
  return "?";
}

TEST(PoolAddress, AWildcardIsNobodys) {
  for (const char* host : {"0.0.0.0", "0", "0x0", "0.0", "[::]", "[0:0::0]", "[::ffff:0.0.0.0]", "0.1.2.3"}) {
    EXPECT_EQ(reason(check_endpoint(std::string("http://") + host + ":9200", "")), "wildcard") << host;
  }
  EXPECT_EQ(reason(check_endpoint("http://10.0.0.7:9200", "10.0.0.7:50000")), "taken");
  EXPECT_EQ(reason(check_endpoint("http://gpu-box:9200", "10.0.0.7:50000")), "taken");
  EXPECT_EQ(reason(check_endpoint("ftp://gpu-box:9200", "")), "url");
}

// What is appended to it is a path of the pool manager or the worker, and of nothing else that listens there.
TEST(PoolAddress, IsABaseUrl) {
  for (const char* rest : {"/admin", "/?x=", "?x=", "/#", "#x", "/a/..", "//"}) {
    EXPECT_EQ(reason(check_endpoint(std::string("http://10.0.0.7:9200") + rest, "")), "url") << rest;
    EXPECT_EQ(reason(check_worker_uri(std::string("http://10.0.0.7:41000") + rest, "http://10.0.0.7:9200")), "url");
  }
  for (const char* rest : {"", "/"}) {
    EXPECT_EQ(reason(check_endpoint(std::string("http://10.0.0.7:9200") + rest, "")), "taken") << rest;
  }
}

// It would be the machine of orchestratord.
TEST(PoolAddress, ALoopbackAddressIsForThisMachineOnly) {
  EXPECT_EQ(reason(check_endpoint("http://127.0.0.1:9200", "10.0.0.7:50000")), "loopback");
  EXPECT_EQ(reason(check_endpoint("http://[::1]:9200", "10.0.0.7:50000")), "loopback");
  EXPECT_EQ(reason(check_endpoint("http://127.0.0.2:9200", "127.0.0.1:50000")), "taken");
}

TEST(PoolAddress, AWorkerIsOnItsPoolsHost) {
  EXPECT_EQ(reason(check_addresses(state("http://10.0.0.7:9200", "http://10.0.0.7:41000"), "10.0.0.7:5")), "taken");
  EXPECT_EQ(reason(check_addresses(state("http://gpu-box:9200", "http://GPU-box:41000"), "10.0.0.7:5")), "taken");
  EXPECT_EQ(reason(check_addresses(state("http://10.0.0.7:9200", "http://10.0.0.8:41000"), "10.0.0.7:5")), "host");
  EXPECT_EQ(reason(check_addresses(state("http://10.0.0.7:9200", "http://0.0.0.0:41000"), "10.0.0.7:5")), "host");
  EXPECT_EQ(reason(check_addresses(state("http://10.0.0.7:9200", "nonsense"), "10.0.0.7:5")), "url");
}

}  // namespace
}  // namespace llorch::orchestratord::pool_access
