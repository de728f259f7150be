-- once: a call that is sent twice changes nothing the second time and answers the same.
--
-- A caller numbers its calls to a shard and sends them one after the other; the last number and
-- its answer stand under the caller's own key. That also stops a call that was stuck in a dead
-- connection's buffer and arrives after its own repetition, which no check of the job itself
-- could: by then the job may have finished and gone. Answers are lists of integers, so they
-- are kept as plain text. seq 0 asks for no protection.
local function answered(call_key, seq)
  if seq == 0 then
    return nil
  end
  local kept = redis.call('GET', call_key)
  if not kept then
    return nil
  end
  local last, text = kept:match('^(%d+) ?(.*)$')
  if tonumber(last) < seq then
    return nil
  end
  if tonumber(last) > seq then
    return redis.error_reply('REPEATED an earlier call of this caller arrived late')
  end
  local answer = {}
  for number in text:gmatch('%-?%d+') do
    answer[#answer + 1] = tonumber(number)
  end
  return answer
end

local function answer_once(call_key, seq, answer)
  if seq > 0 then
    redis.call('SET', call_key, seq .. ' ' .. table.concat(answer, ' '), 'PX', 3600000)
  end
  return answer
end
