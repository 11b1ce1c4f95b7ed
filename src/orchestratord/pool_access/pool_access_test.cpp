#include "orchestratord/pool_access/pool_access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "base/file.h"

namespace llorch::orchestratord::pool_access {
namespace {

const base::PoolId kA("pool-a"), kB("pool-b");

class PoolAccessTest : public testing::Test {
 public:
  ~PoolAccessTest() override { std::filesystem::remove_all(directory_); }

 protected:
  PoolAccessTest()
      : directory_(std::filesystem::temp_directory_path() / ("llorch-access-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
  }
  std::unique_ptr<PoolAccess> open() { return std::move(*PoolAccess::open(file(), entropy_)); }
  std::filesystem::path file() const { return directory_ / kFileName; }
  static base::Sha256Digest shown(const config::PoolCredential& credential) {
    return base::sha256(credential.node_token());
  }
  static net::http::Principal caller(const PoolAccess& access, const config::PoolCredential& credential) {
    return access.caller_of(shown(credential)).value();
  }
  // The pool says it, and the core accepts it.
  static void move_to(PoolAccess& access, const config::PoolCredential& credential, const std::string& endpoint) {
    EXPECT_TRUE(access.announce(caller(access, credential), endpoint));
    access.remember(credential.pool_id(), endpoint);
  }
  static std::string pool_of(const PoolAccess& access, const config::PoolCredential& credential) {
    const auto caller = access.caller_of(shown(credential));
    return caller ? caller->name : "nobody's";
  }

  std::filesystem::path directory_;
  base::SeededEntropy entropy_{7};
};

TEST_F(PoolAccessTest, APairedPoolIsKnownByItsNodeTokenAlsoAfterARestart) {
  auto access = open();
  const auto a = access->pair(kA).value(), b = access->pair(kB).value();
  for (int life = 0; life < 2; ++life, access = open()) {
    EXPECT_EQ(pool_of(*access, a), kA.value);
    EXPECT_EQ(pool_of(*access, b), kB.value);
    EXPECT_TRUE(access->is_paired(a));
    EXPECT_TRUE(access->is_paired(kA));
    for (const std::string& other : {a.control_token(), a.worker_token(), a.text(), std::string("token")}) {
      EXPECT_FALSE(access->caller_of(base::sha256(other)));
    }
  }
}

TEST_F(PoolAccessTest, WhatIsUnpairedOrPairedAgainIsRefusedAtOnceAndForGood) {
  auto access = open();
  const auto first = access->pair(kA).value();
  const auto old = caller(*access, first);
  move_to(*access, first, "http://10.0.0.7:9200");
  EXPECT_TRUE(access->announce(old, "http://10.0.0.66:9200")) << "and the core has not heard it yet";
  const auto second = access->pair(kA).value();
  EXPECT_FALSE(access->caller_of(shown(first)));
  EXPECT_FALSE(access->is_current(old));
  EXPECT_FALSE(access->announce(old, "http://10.0.0.66:9200"));
  for (const char* where : {"http://10.0.0.7:9200", "http://10.0.0.66:9200"}) {
    access->remember(kA, where);
    EXPECT_FALSE(access->endpoint_of(kA)) << "the new token is not for whom the old one was for";
  }
  EXPECT_FALSE(access->token_for_worker(kA, "http://10.0.0.7:41000"));
  move_to(*access, second, "http://10.0.0.7:9200");
  EXPECT_EQ(access->unpair(kA), true);
  EXPECT_EQ(access->unpair(kA), false);
  access->restore(kA, "http://10.0.0.7:9200");
  for (int life = 0; life < 2; ++life, access = open()) {
    EXPECT_FALSE(access->caller_of(shown(second)));
    EXPECT_FALSE(access->is_paired(kA));
    EXPECT_FALSE(access->token_for_worker(kA, "http://10.0.0.7:41000"));
    EXPECT_FALSE(access->at("http://10.0.0.7:9200"));
    EXPECT_FALSE(access->is_paired(second));
  }
}

// Reports cross on their way: one that the core takes later is as good as one that it takes at once.
TEST_F(PoolAccessTest, ReportsThatNameDifferentPlacesAreAllHeard) {
  auto access = open();
  const auto a = access->pair(kA).value();
  EXPECT_TRUE(access->announce(caller(*access, a), "http://10.0.0.8:9200"));
  EXPECT_TRUE(access->announce(caller(*access, a), "http://10.0.0.7:9200"));
  access->remember(kA, "http://10.0.0.7:9200");
  access->remember(kA, "http://10.0.0.8:9200");
  EXPECT_EQ(access->endpoint_of(kA), "http://10.0.0.8:9200");
}

TEST_F(PoolAccessTest, ATokenIsForTheEndpointItsPoolWasAcceptedAt) {
  auto access = open();
  const auto a = access->pair(kA).value(), b = access->pair(kB).value();
  EXPECT_FALSE(access->at("http://10.0.0.7:9200"));
  EXPECT_FALSE(access->at(""));
  move_to(*access, a, "http://10.0.0.7:9200");
  move_to(*access, b, "http://10.0.0.8:9200");
  EXPECT_EQ(access->at("http://10.0.0.7:9200")->token, a.control_token());
  EXPECT_EQ(access->at("http://10.0.0.8:9200")->pool_id, kB);
  EXPECT_EQ(access->token_for_worker(kA, "http://10.0.0.7:41000"), a.control_token());
  EXPECT_FALSE(access->token_for_worker(kA, "http://10.0.0.8:41000")) << "another host";
  move_to(*access, a, "http://10.0.0.9:9200");
  EXPECT_FALSE(access->at("http://10.0.0.7:9200")) << "it moved";
  move_to(*access, b, "http://10.0.0.9:9200");
  EXPECT_EQ(access->at("http://10.0.0.9:9200")->token, b.control_token());
  EXPECT_FALSE(access->endpoint_of(kA));
  EXPECT_EQ(access->pair(base::PoolId("pool-c"))->pool_id().value, "pool-c");
  EXPECT_EQ(access->endpoint_of(kB), "http://10.0.0.9:9200") << "pairing another pool changes nothing of this one";
  access->forget(kB);
  EXPECT_FALSE(access->at("http://10.0.0.9:9200"));
}

TEST_F(PoolAccessTest, APoolIsHereWhileItsEndpointIsKnown) {
  const auto access = open();
  EXPECT_TRUE(access->all_are_here()) << "nobody is missed";
  const auto a = access->pair(kA).value(), b = access->pair(kB).value();
  move_to(*access, a, "http://10.0.0.1:9200");
  EXPECT_FALSE(access->all_are_here()) << "the other one has yet to come";
  EXPECT_EQ(access->besides({"http://10.0.0.1:9200"}), std::vector{kB.value});
  EXPECT_EQ(access->besides({}), (std::vector{kA.value, kB.value}));
  move_to(*access, b, "http://10.0.0.2:9200");
  EXPECT_TRUE(access->all_are_here());
  access->forget(kA);
  EXPECT_FALSE(access->all_are_here());
  EXPECT_TRUE(access->unpair(kA).value());
  EXPECT_TRUE(access->all_are_here());
}

TEST_F(PoolAccessTest, TheFileHoldsNoSecretAndIsForNobodyElse) {
  const auto a = open()->pair(kA).value();
  struct stat st {};
  ASSERT_EQ(::stat(file().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  const std::string text = base::read_file(file(), 4096).value();
  EXPECT_EQ(text.find(a.text().substr(kA.value.size() + 1)), std::string::npos);
  EXPECT_EQ(text.find(a.node_token()), std::string::npos);
  ASSERT_EQ(::chmod(file().c_str(), 0644), 0);
  EXPECT_EQ(PoolAccess::open(file(), entropy_).error().code, base::ErrorCode::kConfigInvalid);
}

TEST_F(PoolAccessTest, AFileThatIsNotItsOwnIsRefused) {
  const std::string first = "llorch-pool-credentials 1\n", hash(64, 'a');
  for (const std::string& text :
       {std::string(), std::string("{}"), first + "pool-a\n", first + "pool-a " + hash + "\n",
        first + "pool-a " + hash + " " + hash + " more\n", first + "p! " + hash + " " + hash + "\n",
        first + "a " + hash + " " + hash + "\na " + hash + " " + hash + "\n"}) {
    std::ofstream(file(), std::ios::trunc) << text;
    ASSERT_EQ(::chmod(file().c_str(), 0600), 0);
    const auto opened = PoolAccess::open(file(), entropy_);
    ASSERT_FALSE(opened.has_value()) << text;
    EXPECT_EQ(opened.error().code, base::ErrorCode::kCorruptFile);
  }
}

// A directory that cannot be written leaves everything as it was.
TEST_F(PoolAccessTest, WhatCannotBeWrittenChangesNothing) {
  auto access = open();
  const auto a = access->pair(kA).value();
  std::filesystem::remove_all(directory_);
  EXPECT_FALSE(access->pair(kA).has_value());
  EXPECT_FALSE(access->unpair(kA).has_value());
  EXPECT_EQ(pool_of(*access, a), kA.value);
}

}  // namespace
}  // namespace llorch::orchestratord::pool_access
