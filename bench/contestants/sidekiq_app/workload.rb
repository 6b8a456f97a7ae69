# frozen_string_literal: true

# The jobs that Sidekiq runs, and the stamps by which they are timed: `bench/workload.py` in Ruby.

require "sidekiq"

Sidekiq.configure_server { |config| config.redis = {url: ENV.fetch("BENCH_REDIS_URL")} }
Sidekiq.configure_client { |config| config.redis = {url: ENV.fetch("BENCH_REDIS_URL")} }
Sidekiq.logger.level = Logger::WARN
# Sidekiq 6.4 on redis-rb 4.8 writes a warning per fetch, which would cost it a good part of its speed.
Redis.silence_deprecations = true

STRIDE = ENV.fetch("BENCH_STRIDE", "1").to_i
STAMPS = File.open(ENV.fetch("BENCH_STAMPS", File::NULL), File::WRONLY | File::APPEND | File::CREAT, 0o600)

def stamp(number)
  STAMPS.syswrite("#{number} #{Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)}\n")
end

# Does nothing; every STRIDE-th number leaves a stamp.
class Noop
  include Sidekiq::Worker

  def perform(number, _text)
    stamp(number) if number % STRIDE == 0
  end
end

# Writes down when it was sent, which is its number, and when it started.
class Started
  include Sidekiq::Worker

  def perform(sent_ns, _text)
    stamp(sent_ns)
  end
end

JOBS = {"noop" => Noop, "started" => Started}.freeze
