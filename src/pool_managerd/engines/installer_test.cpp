#include "pool_managerd/engines/installer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "base/sha256.h"

namespace {

std::atomic<const char*> g_full_once_at =
    nullptr;  // the disk is full the first time that it is asked behind this file's creation

}  // namespace

// Of this program alone. What ran full has room again as soon as somebody removes something.
extern "C" int statvfs(const char* path, struct statvfs* out) noexcept {
  const int fd = ::open(path, O_PATH | O_CLOEXEC);
  if (fd < 0) return -1;
  const int result = ::fstatvfs(fd, out);
  ::close(fd);
  const char* file = g_full_once_at.load();
  if (result == 0 && file != nullptr && ::access(file, F_OK) == 0) {
    g_full_once_at = nullptr;
    out->f_bavail = 0;
  }
  return result;
}

namespace llorch::pool_managerd::engines {
namespace {

namespace fs = std::filesystem;
namespace setup = adapter::setup;
using base::ErrorCode;

constexpr const char* kProgram = "#!/bin/sh\necho served\n";

class InstallerTest : public testing::Test {
 protected:
  InstallerTest() : dir_(fs::temp_directory_path() / ("llorch_installer_" + std::to_string(::getpid()))) {
    fs::create_directories(dir_ / "tree/bin");
    std::ofstream(dir_ / "tree/bin/serve") << kProgram;
    fs::permissions(dir_ / "tree/bin/serve", fs::perms::owner_all);
    options_.policy.cache_dir = (dir_ / "engines").string();
    options_.log_directory = dir_ / "logs";
    options_.environment = {std::string("PATH=") + std::getenv("PATH")};
    options_.clock = &clock_;
    options_.stop = &stop_;
    options_.on_step = [this](const setup::Step& step) { kinds_.push_back(step.kind); };
  }
  ~InstallerTest() override { fs::remove_all(dir_); }

  config::EngineConfig binary(const fs::path& file) {
    config::EngineConfig out;
    out.name = "tale";
    out.engine = "llamacpp";
    out.device = "cpu";
    out.command = {"{engine}/bin/serve"};
    out.provisioning.mode = config::ProvisioningMode::kBinary;
    out.provisioning.version = "b1";
    const auto content = base::read_file(file, 1 << 24);
    out.provisioning.binary = {.url = "file:" + file.string(),
                               .checksum = "sha256:" + base::to_hex(base::sha256(content ? *content : ""))};
    return out;
  }
  fs::path archive(const std::string& name, const std::string& make) {
    EXPECT_EQ(
        std::system(("cd " + (dir_ / "tree").string() + " && " + make + " " + (dir_ / name).string() + " .").c_str()),
        0);
    return dir_ / name;
  }
  fs::path directory(const config::EngineConfig& engine) const { return setup::directory_of(engine, options_.policy); }

  fs::path dir_;
  const base::SystemClock clock_;
  provisioner::StopFlag stop_;
  InstallerOptions options_;
  std::vector<std::string> kinds_;
};

// OC-CONFIG-6020 OC-CONFIG-6025 ORCH-3207#logs: an archive with its checksum becomes a program, once, and what was done is in a log
TEST_F(InstallerTest, AnArchiveBecomesAProgram) {
  const auto engine = binary(archive("x.tar.gz", "tar czf"));
  const auto installed = install(engine, options_);
  ASSERT_TRUE(installed) << installed.error().message;
  EXPECT_EQ(installed->version, "b1");
  EXPECT_GE(installed->size_bytes, static_cast<std::int64_t>(std::string_view(kProgram).size()));
  EXPECT_TRUE(setup::is_program(directory(engine) / "bin/serve"));
  EXPECT_FALSE(fs::exists(directory(engine) / "downloads"));
  EXPECT_THAT(kinds_, testing::ElementsAre("tool", "fetch", "unpack", "check"));
  EXPECT_THAT(base::read_file(dir_ / "logs/engine-tale.log", 1 << 16).value(), testing::HasSubstr("== unpack: "));
  kinds_.clear();
  ASSERT_TRUE(install(engine, options_));
  EXPECT_TRUE(kinds_.empty());  // it is there
  EXPECT_EQ(uninstall(directory(engine)).value() > 0, true);
  EXPECT_FALSE(fs::exists(directory(engine)));
  EXPECT_EQ(uninstall(directory(engine)).value(), 0);
}

TEST_F(InstallerTest, AProgramAndAZipAreTakenAsWell) {
  fs::copy_file(dir_ / "tree/bin/serve", dir_ / "serve");
  const auto alone = binary(dir_ / "serve");
  ASSERT_TRUE(install(alone, options_));
  EXPECT_TRUE(setup::is_program(directory(alone) / "bin/serve"));
  const auto zipped = binary(archive("x.zip", "python3 -m zipfile -c"));
  ASSERT_TRUE(install(zipped, options_)) << install(zipped, options_).error().message;
  EXPECT_TRUE(setup::is_program(directory(zipped) / "bin/serve"));
}

// OC-CONFIG-6025: other bytes than those that were asked for are not unpacked
TEST_F(InstallerTest, AnotherChecksumIsRefused) {
  auto engine = binary(archive("x.tar.gz", "tar czf"));
  engine.provisioning.binary.checksum[10] = engine.provisioning.binary.checksum[10] == '0' ? '1' : '0';
  EXPECT_EQ(install(engine, options_).error().code, ErrorCode::kUntrustedArtifact);
  EXPECT_FALSE(fs::exists(directory(engine)));
}

TEST_F(InstallerTest, AnArchiveWithoutItsProgramIsNone) {
  auto engine = binary(archive("x.tar.gz", "tar czf"));
  engine.command = {"{engine}/bin/other"};
  EXPECT_EQ(install(engine, options_).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(setup::find_installation(directory(engine)));
  fs::copy_file(dir_ / "tree/bin/serve", dir_ / "broken.tar.gz");
  EXPECT_EQ(install(binary(dir_ / "broken.tar.gz"), options_).error().code, ErrorCode::kWorkerStartFailed);
}

// No member of an archive is written outside of the installation.
TEST_F(InstallerTest, NamesThatLeadOutAreRefused) {
  const std::string script =
      "import zipfile,sys; z=zipfile.ZipFile(sys.argv[1],'w'); z.writestr('../../evil','x'); z.close()";
  ASSERT_EQ(std::system(("python3 -c \"" + script + "\" " + (dir_ / "evil.zip").string()).c_str()), 0);
  EXPECT_EQ(install(binary(dir_ / "evil.zip"), options_).error().code, ErrorCode::kCorruptFile);
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir_)) files.push_back(entry.path().filename().string());
  EXPECT_THAT(files, testing::Not(testing::Contains("evil")));
}

// What an archive says it holds has room on the disk, and leaves some of it, or none of it is unpacked.
TEST_F(InstallerTest, AnArchiveThatNoDiskHoldsIsRefused) {
  const std::string script =
      "import zipfile,sys; z=zipfile.ZipFile(sys.argv[1],'w'); z.writestr('bin/serve','x'); "
      "z.filelist[0].file_size=1<<55; z.close()";
  ASSERT_EQ(std::system(("python3 -c \"" + script + "\" " + (dir_ / "huge.zip").string()).c_str()), 0);
  EXPECT_EQ(install(binary(dir_ / "huge.zip"), options_).error().code, ErrorCode::kInsufficientDisk);
}

// Why it was ended, whatever the disk has afterwards.
TEST_F(InstallerTest, ACommandThatLeavesTooLittleRoomIsEnded) {
  const auto engine = binary(archive("x.tar.gz", "tar czf"));
  fs::create_directories(dir_ / "tools");
  const std::string full = dir_ / "full";
  std::ofstream(dir_ / "tools/tar") << "#!/bin/sh\ntouch " << full << "\nexec sleep 600\n";
  fs::permissions(dir_ / "tools/tar", fs::perms::owner_all);
  options_.environment = {"PATH=" + (dir_ / "tools").string() + ":" + std::getenv("PATH")};
  g_full_once_at = full.c_str();
  const auto ended = install(engine, options_);
  EXPECT_EQ(g_full_once_at.exchange(nullptr), nullptr);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kInsufficientDisk) << ended.error().message;
}

// ORCH-3206: nothing is fetched or installed that the configuration does not allow
TEST_F(InstallerTest, PoliciesAreOff) {
  auto engine = binary(dir_ / "tree/bin/serve");
  engine.provisioning.binary.url = "https://host.invalid/x.tar.gz";
  const auto refused = install(engine, options_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kForbidden);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("allow_binary_downloads"));
  options_.policy.allow_binary_downloads = true;  // models.pull.policy still allows nobody to be asked
  EXPECT_EQ(install(engine, options_).error().code, ErrorCode::kForbidden);
  EXPECT_TRUE(kinds_.size() >= 1);
}

// What a killed installation leaves is none, and the next one begins anew.
TEST_F(InstallerTest, HalfOfOneCountsAsNone) {
  const auto engine = binary(archive("x.tar.gz", "tar czf"));
  fs::create_directories(directory(engine) / "bin");
  std::ofstream(directory(engine) / "bin/serve") << "half";
  std::ofstream(directory(engine) / "left") << "half";
  ASSERT_TRUE(install(engine, options_));
  EXPECT_FALSE(fs::exists(directory(engine) / "left"));
  EXPECT_EQ(base::read_file(directory(engine) / "bin/serve", 4096).value(), kProgram);
}

TEST_F(InstallerTest, OneAtATimeAndNeverUnderAWorker) {
  const auto engine = binary(archive("x.tar.gz", "tar czf"));
  fs::create_directories(directory(engine).parent_path());
  const int other = ::open((directory(engine).string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(install(engine, options_).error().code, ErrorCode::kConflict);
  ::close(other);
  ASSERT_TRUE(install(engine, options_));
  const int worker = ::open((directory(engine) / "engine.json").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(worker, LOCK_SH | LOCK_NB), 0);
  EXPECT_EQ(uninstall(directory(engine)).error().code, ErrorCode::kConflict);
  EXPECT_TRUE(setup::find_installation(directory(engine)));
  ::close(worker);
  EXPECT_TRUE(uninstall(directory(engine)));
}

// OC-CONFIG-6022: a commit of a repository is fetched, configured and built
TEST_F(InstallerTest, ASourceIsBuilt) {
  const fs::path tree = dir_ / "repo";
  fs::create_directories(tree);
  std::ofstream(tree / "CMakeLists.txt")
      << "cmake_minimum_required(VERSION 3.20)\nproject(x NONE)\n"
         "file(WRITE ${CMAKE_BINARY_DIR}/serve \"#!/bin/sh\\n# ${FLAVOUR}\\n\")\n"
         "file(CHMOD ${CMAKE_BINARY_DIR}/serve PERMISSIONS OWNER_READ OWNER_EXECUTE)\n";
  const std::string git =
      "cd " + tree.string() +
      " && git init -q . && git add . && git -c user.name=x -c user.email=x@x commit -qm x && git rev-parse "
      "HEAD > ../commit";
  ASSERT_EQ(std::system(git.c_str()), 0);
  auto engine = binary(dir_ / "commit");
  engine.command = {"{engine}/build/serve"};
  engine.provisioning.mode = config::ProvisioningMode::kSource;
  engine.provisioning.source = {.repo = "file://" + tree.string(),
                                .ref = base::read_file(dir_ / "commit", 100).value().substr(0, 40),
                                .build = {.cmake_flags = {"-DFLAVOUR=plain"}}};
  const auto installed = install(engine, options_);
  ASSERT_TRUE(installed) << installed.error().message
                         << base::read_file(dir_ / "logs/engine-tale.log", 1 << 16).value();
  EXPECT_THAT(base::read_file(directory(engine) / "build/serve", 4096).value(), testing::HasSubstr("# plain"));
  engine.provisioning.source.ref = std::string(40, 'e');
  EXPECT_EQ(install(engine, options_).error().code, ErrorCode::kWorkerStartFailed);
}

}  // namespace
}  // namespace llorch::pool_managerd::engines
