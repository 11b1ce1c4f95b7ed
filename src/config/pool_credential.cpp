#include "config/pool_credential.h"

#include <fmt/core.h>
#include <unistd.h>

#include <span>
#include <system_error>

#include "base/assert.h"
#include "base/file.h"
#include "base/sha256.h"
#include "config/config.h"

namespace llorch::config {
namespace {

constexpr std::size_t kFileBytesMax = 4096;  // a credential has 322 at most

std::optional<std::uint8_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

tl::unexpected<base::Error> not_one() {
  return base::fail(base::ErrorCode::kConfigInvalid,
                    "a pool's credential is one line, the pool's id, a colon and 64 hex digits; make one with "
                    "`llorch pool pair POOL_ID`");
}

}  // namespace

PoolCredential PoolCredential::make(base::PoolId pool_id, base::Entropy& entropy) {
  ASSERT(base::is_valid_identifier(pool_id.value));
  Secret secret;
  entropy.fill(std::as_writable_bytes(std::span(secret)));
  return {std::move(pool_id), secret};
}

base::Result<PoolCredential> PoolCredential::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return not_one();
  const std::string_view id = text.substr(0, colon), digits = text.substr(colon + 1);
  Secret secret;
  if (!base::is_valid_identifier(id) || digits.size() != 2 * secret.size()) return not_one();
  for (std::size_t i = 0; i < secret.size(); ++i) {
    const auto high = hex_digit(digits[2 * i]), low = hex_digit(digits[2 * i + 1]);
    if (!high || !low) return not_one();
    secret[i] = static_cast<std::uint8_t>(*high << 4 | *low);
  }
  return PoolCredential(base::PoolId(std::string(id)), secret);
}

std::string PoolCredential::text() const { return pool_id_.value + ":" + base::to_hex(secret_); }

std::string PoolCredential::derive(std::string_view label) const {
  return base::to_hex(base::hmac_sha256(secret_, fmt::format("llorch/1 {} {}", label, pool_id_.value)));
}
std::string PoolCredential::node_token() const { return derive("pool to orchestratord"); }
std::string PoolCredential::control_token() const { return derive("to pool and worker"); }
std::string PoolCredential::worker_token() const { return derive("worker to pool"); }

std::filesystem::path pool_credential_file(const Config& config, const std::filesystem::path& state_directory) {
  const std::string& file = config.pool_managerd.credential_file;
  return file.empty() ? state_directory / "pool_credential" : std::filesystem::path(file);
}

base::Result<std::optional<PoolCredential>> load_pool_credential(const std::filesystem::path& file) {
  std::error_code ec;
  const bool is_there = std::filesystem::exists(file, ec);
  if (ec) return base::fail(base::io_error("cannot open", file, ec.value()));
  if (!is_there) return std::optional<PoolCredential>();
  auto credential = PoolCredential::parse(TRY(read_secret(file.string())));
  if (!credential) {
    return base::fail(credential.error().code, fmt::format("{}: {}", file.string(), credential.error().message));
  }
  return std::optional(std::move(*credential));
}

base::Result<> check_pool_credential_file(const std::filesystem::path& file) {
  std::error_code ec;
  if (std::filesystem::exists(file, ec)) TRY(base::read_file(file, kFileBytesMax));
  std::filesystem::path beside = file;
  beside += fmt::format(".{}.new", ::getpid());
  TRY(base::write_file_atomic(beside, std::string(kFileBytesMax, '\n')));
  if (!std::filesystem::remove(beside, ec)) return base::fail(base::io_error("cannot remove", beside, ec.value()));
  return {};
}

base::Result<> store_pool_credential(const std::filesystem::path& file, const PoolCredential& credential) {
  const std::string text = credential.text() + "\n";
  std::error_code ec;
  if (std::filesystem::exists(file, ec)) {
    const std::string before = TRY(base::read_file(file, kFileBytesMax));
    if (before == text) return {};
    std::filesystem::path kept = file;
    TRY(base::write_file_atomic(kept += ".replaced", before, 0600));
  }
  return base::write_file_atomic(file, text, 0600);
}

}  // namespace llorch::config
