#include "config/model_grant.h"

#include <gtest/gtest.h>

namespace llorch::config {
namespace {

TEST(ModelGrant, OpensOneModelOfOnePoolForAWhile) {
  const std::string grant = model_grant("token", "sha256:aa", 1000);
  EXPECT_TRUE(opens_model(grant, "token", "sha256:aa", 999));
  EXPECT_FALSE(opens_model(grant, "token", "sha256:aa", 1000));
  EXPECT_FALSE(opens_model(grant, "token", "sha256:ab", 999));
  EXPECT_FALSE(opens_model(grant, "another", "sha256:aa", 999));
  EXPECT_FALSE(opens_model("2000" + grant.substr(4), "token", "sha256:aa", 999));
  for (const char* text : {"", ".", "1000", "1000.", "99999999999999999999.00", "-1.00", "token"}) {
    EXPECT_FALSE(opens_model(text, "token", "sha256:aa", 999)) << text;
  }
  EXPECT_FALSE(opens_model(grant + "0", "token", "sha256:aa", 999));
  EXPECT_EQ(grant.find("token"), std::string::npos);
}

}  // namespace
}  // namespace llorch::config
