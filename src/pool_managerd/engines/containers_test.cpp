#include "pool_managerd/engines/containers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/file.h"

namespace llorch::pool_managerd::engines {
namespace {

namespace fs = std::filesystem;

// A runtime that is a script: what a real one does wrong, on purpose.
class ContainersTest : public testing::Test {
 protected:
  ContainersTest() { fs::create_directories(directory_); }
  ~ContainersTest() override { fs::remove_all(directory_); }

  Container container(const std::string& script) const {
    const fs::path program = directory_ / "podman";
    std::ofstream(program) << "#!/bin/sh\necho \"$*\" >> " << (directory_ / "log").string() << "\n" << script << "\n";
    fs::permissions(program, fs::perms::owner_all);
    return {program.string(), name_};
  }
  std::string log() const { return *base::read_file(directory_ / "log", 4096); }

  const std::string name_ = "llorch-tale-" + std::to_string(::getpid());  // processes of all the machine are looked at
  const fs::path directory_ = fs::temp_directory_path() / ("llorch_containers_" + std::to_string(::getpid()));
};

TEST_F(ContainersTest, KillsRemovesAndLooks) {
  EXPECT_TRUE(remove_container(container("[ $1 = ps ]")));  // kill and rm have nothing to do and say so
  EXPECT_EQ(log(), "kill " + name_ + "\nrm --force " + name_ + "\nps --all --format {{.Names}} --filter name=^" +
                       name_ + "$\n");
}

TEST_F(ContainersTest, WhatIsListedStillIsNotGone) {
  EXPECT_EQ(remove_container(container("[ $1 = ps ] && echo " + name_)).error().code, base::ErrorCode::kIoError);
  EXPECT_EQ(remove_container(container("exit 125")).error().code, base::ErrorCode::kIoError) << "nobody knows";
  EXPECT_EQ(remove_container({(directory_ / "none").string(), "x"}).error().code, base::ErrorCode::kIoError);
}

TEST_F(ContainersTest, NobodyWaitsForARuntimeThatHangs) {
  const auto stopped = remove_container(container("exec sleep 1000"), [] { return true; });
  EXPECT_EQ(stopped.error().code, base::ErrorCode::kCancelled);
}

// A process with the command line of podman's watcher and a child of its own, started by `user`; both are a process group.
pid_t start_watcher(uid_t user, const std::string& name) {
  int started[2];  // closed by what is executed
  if (::pipe2(started, O_CLOEXEC) != 0) return -1;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    if (user != ::getuid() && ::setresuid(user, user, user) != 0) ::_exit(3);
    ::execl("/bin/sh", "conmon", "-c", "sleep 1000; :", "-n", name.c_str(), nullptr);
    ::_exit(3);
  }
  ::close(started[1]);
  char none = 0;
  EXPECT_EQ(::read(started[0], &none, 1), 0);
  ::close(started[0]);
  return pid;
}

TEST_F(ContainersTest, AWatcherThatIsLeftGoesWithItsContainer) {
  const Container gone = container("[ $1 = ps ]");
  const pid_t watcher = start_watcher(::getuid(), gone.name);
  ASSERT_GT(watcher, 0);
  EXPECT_TRUE(remove_container(gone));
  EXPECT_EQ(::waitpid(watcher, nullptr, 0), watcher);
}

TEST_F(ContainersTest, AnotherUsersProcessIsNoWatcher) {
  if (::geteuid() != 0) GTEST_SKIP() << "root alone starts processes of others";
  const Container gone = container("[ $1 = ps ]");
  const pid_t stranger = start_watcher(54321, gone.name);
  ASSERT_GT(stranger, 0);
  EXPECT_TRUE(remove_container(gone));
  EXPECT_EQ(::waitpid(stranger, nullptr, WNOHANG), 0) << "and nobody ends it";
  ::kill(-stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
}

TEST_F(ContainersTest, RecordsSurviveAndGo) {
  const ContainerRecords records(directory_ / "containers");
  EXPECT_TRUE(records.all().empty());
  const Container one{"/usr/bin/podman", "llorch-a-1"}, two{"/usr/bin/docker", "llorch-b-2"};
  ASSERT_TRUE(records.add(two));
  ASSERT_TRUE(records.add(one));
  std::ofstream(directory_ / "containers" / "cut") << "usr/bin";  // no path: nobody's record
  const auto found = ContainerRecords(directory_ / "containers").all();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, one.name);
  EXPECT_EQ(found[1].runtime, two.runtime);
  records.drop(one);
  records.drop(one);
  EXPECT_EQ(records.all().size(), 1u);
}

}  // namespace
}  // namespace llorch::pool_managerd::engines
