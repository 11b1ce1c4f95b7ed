#include <gtest/gtest.h>
#include <zlib.h>

#include <array>

#include "cli/bundle/archive.h"
#include "cli/bundle/scrubber.h"

namespace llorch::cli::bundle {
namespace {

constexpr const char* kUuid = "3f0c9a52-1c1e-4d39-8a57-0a7d5b8f1c11";

TEST(Scrubber, AnIdHasOnePseudonymWhereverItStands) {
  Scrubber scrubber("");
  const std::string first = R"({"event":"a","correlation_id":"from-a-caller","job_id":"mine","human":"x"})"
                            "\n";
  const std::string second = R"({"event":"mine","last_log_lines":"{\"job_id\":\"mine\"} from-a-caller, miner"})"
                             "\n";
  scrubber.learn(second);
  scrubber.learn(first);
  EXPECT_EQ(scrubber.scrub(first), R"({"event":"a","correlation_id":"correlation-1","job_id":"job-1","human":"x"})"
                                   "\n");
  EXPECT_EQ(scrubber.scrub(second), R"({"event":"mine","last_log_lines":"{\"job_id\":\"job-1\"} correlation-1, miner"})"
                                    "\n");
}

TEST(Scrubber, UuidsAreIdsAlsoInTextThatIsNoJson) {
  Scrubber scrubber("");
  const std::string text = std::string("it crashed with ") + kUuid + " and worker-" + kUuid + "\n";
  scrubber.learn(text);
  EXPECT_EQ(scrubber.scrub(text), std::string("it crashed with id-1 and worker-") + kUuid + "\n");
}

TEST(Scrubber, ATenantsIdIsOneWithAndWithoutItsName) {
  Scrubber scrubber("");
  EXPECT_EQ(scrubber.scrub(R"({"session_id":"research:agent-1","human":"agent-1 and research:agent-1"})"),
            R"({"session_id":"session-1","human":"session-1 and research:session-1"})"
            "\n");
}

TEST(Scrubber, SecretsHomesAndPeersAreHidden) {
  Scrubber scrubber("/home/alice");
  EXPECT_EQ(
      scrubber.scrub(R"({"proxy":"http://alice:pw@proxy","path":"/home/alice/m.gguf","peer":"10.0.0.9:4411","n":3})"),
      R"({"proxy":"http://[REDACTED]@proxy","path":"~/m.gguf","peer":"peer-1","n":3})"
      "\n");
  EXPECT_EQ(scrubber.scrub("Authorization: Bearer abcdefgh\n"), "Authorization: Bearer [REDACTED]\n");
  EXPECT_EQ(scrubber.scrub(R"({"peer":"127.0.0.1:80"})"), "{\"peer\":\"127.0.0.1\"}\n");
}

std::string unpacked(std::string packed) {
  z_stream stream{};
  EXPECT_EQ(::inflateInit2(&stream, 15 + 16), Z_OK);
  std::string out(1 << 16, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  ::inflateEnd(&stream);
  return out;
}

TEST(Archive, FilesAreBlocksBehindTheirHeaders) {
  const std::array<ArchiveFile, 2> files{ArchiveFile{"a", std::string(512, 'x')}, ArchiveFile{"d/b", "y"}};
  const auto packed = tar_gz(files, 1'700'000'000);
  ASSERT_TRUE(packed);
  const std::string tar = unpacked(*packed);
  ASSERT_EQ(tar.size(), 6 * 512u);
  EXPECT_EQ(tar.substr(257, 5), "ustar");
  EXPECT_EQ(tar.substr(124, 11), "00000001000");
  EXPECT_EQ(tar.substr(1024, 4), std::string("d/b\0", 4));
  EXPECT_EQ(tar[1536], 'y');
  EXPECT_EQ(tar.substr(2048), std::string(1024, '\0'));
}

}  // namespace
}  // namespace llorch::cli::bundle
