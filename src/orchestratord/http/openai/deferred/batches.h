#pragma once
// /v1/batches: the lines of a file as jobs, their answers in another file. deferred::BatchRunner runs them.
#include <boost/json/object.hpp>
#include <optional>
#include <string>

#include "orchestratord/http/deferred/batch_runner.h"
#include "orchestratord/http/openai/deferred/batch_input.h"
#include "wire/openai.h"

namespace llorch::orchestratord::http::openai {

// REQUIRES: `context` and `runner` outlive it, the context has blobs; every member is called on the thread of kept files.
class Batches final : public deferred::BatchForm {
 public:
  static constexpr std::string_view kKind = "batch";

  Batches(const Context& context, deferred::BatchRunner& runner) : context_(context), runner_(runner) {
    runner_.add(*this);
  }

  void create(const net::Request& request, const net::ExchangePtr& exchange);
  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void cancel(const net::Request& request, const net::ExchangePtr& exchange);

  // Erases results of a batch that a crash kept from being made, and those without a line of one that has ended.
  void remove_orphans() const;

  std::string_view kind() const override { return kKind; }
  deferred::BatchBlobs blobs_of(const std::string& id, const boost::json::object& facts) const override;
  std::optional<deferred::BatchLine> line_of(const boost::json::object& facts, std::string_view text) const override;
  base::Result<tasks::DeferredJobPtr> job_of(const boost::json::object& facts,
                                             deferred::BatchRequest request) const override;
  net::Response refusal(const base::Error& error, const base::CorrelationId& correlation_id) const override;
  std::string result_line(std::string_view custom_id, std::string_view name,
                          const net::Response& answer) const override;
  std::optional<deferred::BatchResult> result_of(std::string_view line) const override;
  std::string unanswered_line(std::string_view, bool) const override { return {}; }
  base::Result<> reveal(const std::string& id, boost::json::object& facts, std::int64_t expires_unix_ms) override;
  void tell(const deferred::BatchLosses& losses, boost::json::object& facts) const override;
  void ended(const std::string& id) override;

 private:
  std::string view(const store::blobs::Blob& blob) const;
  const store::blobs::Blob* find(const net::Request& request, const net::ExchangePtr& exchange) const;
  base::Result<> check_input(const std::string& file_id, BatchCheck& check) const;
  base::Result<boost::json::object> accept(const wire::CreateBatchRequest& wanted, const std::string& id,
                                           const net::http::Principal& caller) const;
  // Of one that is none after all.
  void erase_files(const boost::json::object& facts) const;

  const Context& context_;
  deferred::BatchRunner& runner_;
};

}  // namespace llorch::orchestratord::http::openai
