#!lua flags=allow-oom
-- Take the leader's lock when it is free, or keep it when it is ours.
-- KEYS[1] lock           string   the identity of the leader
-- ARGV[1] identity
-- ARGV[2] time to live in milliseconds
-- Returns 1 when this identity holds the lock now, else 0: then nothing was written.
-- Why a script: GET, then EXPIRE could extend somebody else's lock. Also while Redis is full: what only the leader does
-- must go on.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return 1
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 1
end
return 0
