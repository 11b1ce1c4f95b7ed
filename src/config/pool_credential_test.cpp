#include "config/pool_credential.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "base/sha256.h"

namespace llorch::config {
namespace {

const base::PoolId kPool("gpu-1");

// RFC 4231, case 2.
TEST(Hmac, IsTheOneOfTheRfc) {
  const std::string key = "Jefe";
  const auto digest = base::hmac_sha256({reinterpret_cast<const std::uint8_t*>(key.data()), key.size()},
                                        "what do ya want for nothing?");
  EXPECT_EQ(base::to_hex(digest), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(PoolCredential, IsWhatItsTextSays) {
  base::SeededEntropy entropy(1);
  const auto made = PoolCredential::make(kPool, entropy);
  const std::string text = made.text();
  EXPECT_EQ(text.size(), std::string("gpu-1:").size() + 64);
  const auto read = PoolCredential::parse(text);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->text(), text);
  EXPECT_EQ(read->pool_id(), kPool);
  EXPECT_EQ(read->node_token(), made.node_token());
  EXPECT_NE(PoolCredential::make(kPool, entropy).text(), text) << "each is a new secret";
}

// A token of one direction, or of another pool with the same secret, is no other token, and none of them is the secret.
TEST(PoolCredential, EveryDirectionHasATokenOfItsOwn) {
  const std::string secret(64, 'a');
  std::set<std::string> tokens{secret};
  for (const char* pool : {"gpu-1", "gpu-2"}) {
    const auto credential = PoolCredential::parse(std::string(pool) + ":" + secret).value();
    for (const std::string& token : {credential.node_token(), credential.control_token(), credential.worker_token()}) {
      EXPECT_EQ(token.size(), 64u);
      EXPECT_TRUE(tokens.insert(token).second);
    }
  }
}

TEST(PoolCredential, WhatIsNoneIsRefusedWithoutBeingShown) {
  const std::string digits(64, 'b');
  for (const std::string& bad : {std::string(), digits, ":" + digits, "a b:" + digits, "a:" + digits + "0",
                                 "a:" + digits.substr(1), "a:" + std::string(64, 'g'), "a:" + std::string(64, 'B')}) {
    const auto parsed = PoolCredential::parse(bad);
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_EQ(parsed.error().code, base::ErrorCode::kConfigInvalid);
    EXPECT_EQ(parsed.error().message.find("bbbb"), std::string::npos);
  }
}

// `llorch up` and `llorch pool pair` write over a file that may hold the credential for another orchestratord.
TEST(PoolCredential, TheOneBeforeIsKeptBeside) {
  const auto file = std::filesystem::temp_directory_path() / ("llorch-replaced-" + std::to_string(::getpid()));
  const std::filesystem::path kept = file.string() + ".replaced";
  base::SeededEntropy entropy(3);
  const auto first = PoolCredential::make(kPool, entropy), second = PoolCredential::make(kPool, entropy);
  ASSERT_TRUE(store_pool_credential(file, first).has_value());
  ASSERT_TRUE(store_pool_credential(file, first).has_value());
  EXPECT_FALSE(std::filesystem::exists(kept)) << "the same credential replaces nothing";
  ASSERT_TRUE(store_pool_credential(file, second).has_value());
  EXPECT_EQ(load_pool_credential(file).value()->text(), second.text());
  EXPECT_EQ(load_pool_credential(kept).value()->text(), first.text());
  std::filesystem::remove(file);
  std::filesystem::remove(kept);
}

TEST(PoolCredential, ItsFileIsForNobodyElse) {
  const auto file = std::filesystem::temp_directory_path() / ("llorch-credential-" + std::to_string(::getpid()));
  std::filesystem::remove(file);
  ASSERT_TRUE(load_pool_credential(file).has_value());
  EXPECT_FALSE(load_pool_credential(file)->has_value());
  base::SeededEntropy entropy(2);
  const auto made = PoolCredential::make(kPool, entropy);
  ASSERT_TRUE(store_pool_credential(file, made).has_value());
  struct stat st {};
  ASSERT_EQ(::stat(file.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(load_pool_credential(file).value()->text(), made.text());
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  EXPECT_EQ(load_pool_credential(file).error().code, base::ErrorCode::kConfigInvalid);
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  std::ofstream(file) << "nothing of the kind\n";
  EXPECT_EQ(load_pool_credential(file).error().code, base::ErrorCode::kConfigInvalid);
  std::filesystem::remove(file);
  std::filesystem::create_symlink(file, file);
  const auto unreachable = load_pool_credential(file);
  ASSERT_FALSE(unreachable) << "one that cannot be reached is not none";
  EXPECT_EQ(unreachable.error().code, base::ErrorCode::kIoError);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace llorch::config
