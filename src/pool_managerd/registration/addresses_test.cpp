#include "pool_managerd/registration/addresses.h"

#include <gtest/gtest.h>

#include "net/http/url.h"

namespace llorch::pool_managerd::registration {
namespace {

TEST(Addresses, TheAnnouncedHostIsTheOneThatIsSetElseTheBinds) {
  EXPECT_EQ(advertised_host("", "127.0.0.2"), "127.0.0.2");
  EXPECT_EQ(advertised_host("gpu-box", "0.0.0.0"), "gpu-box");
  EXPECT_EQ(advertised_host("10.0.0.6", "10.0.0.6"), "10.0.0.6");
  EXPECT_EQ(advertised_host("fd00::6", "::"), "fd00::6");
  EXPECT_EQ(advertised_host("[fd00::6]", "::"), "fd00::6");
}

TEST(Addresses, AWildcardIsNeverAnnounced) {
  for (const char* bind : {"0.0.0.0", "::"}) {
    const auto host = advertised_host("", bind);
    ASSERT_FALSE(host.has_value());
    EXPECT_EQ(host.error().code, base::ErrorCode::kConfigInvalid);
    EXPECT_NE(host.error().message.find("pool-managerd.advertise"), std::string::npos) << "what to write";
  }
  for (const char* advertise : {"0.0.0.0", "::", "0", "http://10.0.0.6", "10.0.0.6:9200", "a b", "a/b", "a@b", "a?b"}) {
    EXPECT_FALSE(advertised_host(advertise, "127.0.0.1").has_value()) << advertise;
  }
}

TEST(Addresses, OrchestratordIsWhereItBindsUnlessItIsNamed) {
  config::Config config;
  EXPECT_EQ(orchestrator_url(config), "http://127.0.0.1:8080");
  config.orchestratord.bind = "10.0.0.5:8080";
  EXPECT_EQ(orchestrator_url(config), "http://10.0.0.5:8080") << "nothing listens at loopback";
  config.orchestratord.bind = "0.0.0.0:8081";
  EXPECT_EQ(orchestrator_url(config), "http://127.0.0.1:8081");
  config.pool_managerd.orchestrator_url = "http://head:8080";
  EXPECT_EQ(orchestrator_url(config), "http://head:8080");
  config.pool_managerd.orchestrator_url = "";
  EXPECT_EQ(orchestrator_url(config), "") << "works alone";
}

TEST(Addresses, AWorkerHasAnAddressForOthersAndOneForItsPool) {
  using net::http::local_host;
  EXPECT_EQ(local_host("0.0.0.0"), "127.0.0.1");
  EXPECT_EQ(local_host("::"), "::1");
  EXPECT_EQ(local_host("10.0.0.6"), "10.0.0.6");
  EXPECT_EQ(at_host("http://0.0.0.0:41000", "10.0.0.6"), "http://10.0.0.6:41000");
  EXPECT_EQ(at_host("http://10.0.0.6:41000/", local_host("::")), "http://[::1]:41000");
  EXPECT_FALSE(at_host("nonsense", "10.0.0.6").has_value());
}

}  // namespace
}  // namespace llorch::pool_managerd::registration
