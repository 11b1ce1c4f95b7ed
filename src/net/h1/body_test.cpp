#include "net/h1/body.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <memory>
#include <optional>
#include <vector>

#include "net/h1/wire.h"

namespace llorch::net::h1 {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// However bodies grow and end: they hold what was appended, and what they say they allocate is what the pool gave.
TEST(Body, SaysWhatIsAllocatedForIt) {
  rc::check([] {
    constexpr std::size_t kBodies = 5;
    ChunkPool pool;
    std::vector<std::optional<Body>> bodies(kBodies);
    std::vector<std::string> expected(kBodies);
    for (auto& body : bodies) body.emplace(pool);
    const auto steps = *rc::gen::container<std::vector<std::pair<std::size_t, std::size_t>>>(rc::gen::pair(
        rc::gen::inRange<std::size_t>(0, 3 * kBodies), rc::gen::inRange<std::size_t>(0, 3 * kChunkBytes)));
    for (const auto& [choice, bytes] : steps) {
      const std::size_t index = choice % kBodies;
      if (bytes % 7 == 0) {
        const std::string whole = bodies[index]->join();
        RC_ASSERT(whole == std::exchange(expected[index], {}));
      } else if (bytes % 7 == 1) {
        bodies[index].emplace(pool);
        expected[index].clear();
      } else {
        const std::string part(bytes, static_cast<char>('a' + choice));
        bodies[index]->append(part);
        expected[index] += part;
      }
      std::size_t allocated = 0;
      for (std::size_t i = 0; i < kBodies; ++i) {
        RC_ASSERT(bodies[i]->allocated_bytes() == (expected[i].size() + kChunkBytes - 1) / kChunkBytes * kChunkBytes);
        allocated += bodies[i]->allocated_bytes();
      }
      RC_ASSERT(pool.taken_bytes() == allocated);
    }
  });
}

// Bodies that took all there was leave a MiB of it, and their memory comes back when it is needed again.
TEST(Body, TheSystemGetsBackWhatNoBodyHolds) {
  ChunkPool pool;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<Body>> bodies;
    for (int i = 0; i < 16; ++i) {
      bodies.push_back(std::make_unique<Body>(pool));
      bodies.back()->append(std::string(kMiB, 'x'));
    }
    EXPECT_EQ(pool.resident_bytes(), 16 * kMiB);
    EXPECT_EQ(bodies.front()->join(), std::string(kMiB, 'x'));
    bodies.clear();
    EXPECT_EQ(pool.taken_bytes(), 0u);
    EXPECT_EQ(pool.resident_bytes(), kMiB);
  }
}

// What a request is charged for its body is what its body takes, at any moment of it.
TEST(Body, ARequestIsChargedWhatItsBodyTakes) {
  constexpr std::size_t kBytes = 100'000;
  for (const std::string_view framing :
       {"Content-Length: 100000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n186a0\r\n"}) {
    ChunkPool pool;
    RequestParser parser({}, pool);
    const std::string head = "POST / HTTP/1.1\r\n" + std::string(framing);
    std::string_view rest = head;
    while (!rest.empty()) {
      const auto step = parser.feed(rest);
      ASSERT_TRUE(step);
      rest.remove_prefix(step->consumed);
    }
    const std::size_t empty = parser.memory_bytes();
    const std::string part(999, 'x');
    for (std::size_t sent = 0; sent < kBytes - 999; sent += part.size()) {
      ASSERT_TRUE(parser.feed(part));
      EXPECT_EQ(parser.memory_bytes() - empty, pool.taken_bytes());
      EXPECT_GT(pool.taken_bytes(), sent);
    }
    const std::string last = std::string(kBytes % part.size(), 'x') + "\r\n0\r\n\r\n";
    ASSERT_TRUE(parser.feed(last));
    ASSERT_TRUE(parser.complete());
    EXPECT_EQ(pool.taken_bytes(), 0u);
    EXPECT_EQ(parser.body().size(), kBytes);
    EXPECT_EQ(parser.body().capacity(), kBytes);
  }
}

}  // namespace
}  // namespace llorch::net::h1
