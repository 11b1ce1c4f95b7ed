#pragma once
// How the batches of one API read: their requests, their answers, and what is done at their end.
#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "orchestratord/http/chat/answer.h"
#include "orchestratord/http/deferred/batch_lines.h"
#include "orchestratord/http/tasks/deferred_job.h"

namespace llorch::orchestratord::http::deferred {

// Ids of blobs.
struct BatchBlobs {
  std::string input;     // a request a line
  std::string answers;   // a line each: those that completed
  std::string failures;  // the others; may be the same blob
};

// What of its blobs was gone or damaged before its end.
struct BatchLosses {
  bool input = false;
  bool results = false;  // of answers or failures
};

// One request on its way.
struct BatchRequest {
  std::string_view body;
  std::string name;  // the same in every process: what is drawn for it is drawn from this
  net::http::Principal caller;
  std::string task_id;
  chat::AnswerIdentity identity;
};

class BatchForm {
 public:
  BatchForm() = default;
  BatchForm(const BatchForm&) = delete;
  BatchForm& operator=(const BatchForm&) = delete;
  virtual ~BatchForm() = default;

  // Of its blobs; no other form has it.
  virtual std::string_view kind() const = 0;
  virtual BatchBlobs blobs_of(const std::string& id, const boost::json::object& facts) const = 0;

  // A line of the input. Nothing: it is none.
  virtual std::optional<BatchLine> line_of(const boost::json::object& facts, std::string_view text) const = 0;
  // The job of a request, of priority batch and with a seed. Errors: as a client would have them that sent it alone.
  virtual base::Result<tasks::DeferredJobPtr> job_of(const boost::json::object& facts, BatchRequest request) const = 0;

  // The answer to a request that was refused.
  virtual net::Response refusal(const base::Error& error, const base::CorrelationId& correlation_id) const = 0;
  // An answer as a line of the blob, with its end. `correlation_id`: a UUID of the request's own.
  virtual std::string result_line(std::string_view custom_id, std::string_view correlation_id,
                                  const net::Response& answer) const = 0;
  // Of such a line. Nothing: it is none.
  virtual std::optional<BatchResult> result_of(std::string_view line) const = 0;
  // What stands for a request that got no answer because the batch was cancelled, or else because its time was over. Empty: nothing does.
  virtual std::string unanswered_line(std::string_view custom_id, bool cancelled) const = 0;

  // Every request has what it gets; from here on the client may read it. Changes `facts` where they tell of it. May be called again.
  virtual base::Result<> reveal(const std::string& id, boost::json::object& facts, std::int64_t expires_unix_ms) = 0;
  // The batch ends without answers that it should have. Changes `facts` where they tell of it.
  virtual void tell(const BatchLosses& losses, boost::json::object& facts) const = 0;
  // The batch has ended, and this is on the disk.
  virtual void ended(const std::string& id) = 0;
};

}  // namespace llorch::orchestratord::http::deferred
