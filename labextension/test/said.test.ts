// What the server says, in the words of a catalogue.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { said, speak } from '../src/translation';

const CATALOGUE = join(__dirname, '../../../jupyter_gpusched/locale/zh_CN/LC_MESSAGES/jupyter_gpusched.json');
const known = JSON.parse(readFileSync(CATALOGUE, 'utf8')) as Record<string, string[]>;

function inChinese(sentence: string): string {
  speak({ load: () => ({ __: (text: string) => known[text]?.[0] ?? text, _n: (one: string) => one }) } as never);
  const words = said(sentence);
  speak(null);
  return words;
}

test('without a catalogue the server is heard as it speaks', () => {
  assert.equal(said('needs 4.0G on 1 GPU'), 'needs 4.0G on 1 GPU');
});

test('sentences are said whole, with what is asked for put in', () => {
  assert.equal(inChinese('needs 4.0G on 1 GPU'), '需要 1 张 GPU 上的 4.0G');
  assert.equal(inChinese("needs 2 whole GPUs named 'A100'"), '需要 2 张整卡（名称含 A100）');
  assert.equal(
    inChinese('asked 20.0G, peak 6.1G: ask for 7.0G next time'),
    '申请 20.0G，峰值 6.1G：下次请申请 7.0G'
  );
});

test('a sentence of many parts is said part by part', () => {
  assert.equal(
    inChinese(
      'needs 20.0G on 1 GPU; best is GPU 1: 12.1G free, 8.0G promised to 2 jobs, 3.9G in use outside the queue; ' +
        'it ran out of memory on GPU 0 with 12.0G available, so it waits for another GPU or for more there'
    ),
    '需要 1 张 GPU 上的 20.0G；最合适的是 GPU 1：空闲 12.1G，已承诺 8.0G 给 2 个作业，队列之外占用 3.9G；' +
      '它在 GPU 0 只有 12.0G 可用时显存不足，因此等待另一张 GPU 或更多显存'
  );
  assert.equal(
    inChinese('needs 8.0G on 1 GPU; GPU 0 is kept for a job of ann, which has waited 5m00s for 20.0G on 1 GPU'),
    '需要 1 张 GPU 上的 8.0G；GPU 0 保留给 ann 的作业，它已等待 5m00s，需要 1 张 GPU 上的 20.0G'
  );
});

test('what a user wrote stays as it is', () => {
  assert.equal(inChinese('exit code 1: ValueError: 3 free; needs more'), '退出码 1：ValueError: 3 free; needs more');
  assert.equal(
    inChinese('held by ann: wait, 3 free; `jupyter gpusched release abcd`, in a notebook `%gpurelease abcd`, lets it go on'),
    '由 ann 暂缓：wait, 3 free；用 `jupyter gpusched release abcd`（在笔记本中用 `%gpurelease abcd`）放行'
  );
  assert.equal(inChinese('a sentence that nobody knows, with a comma; and more'), 'a sentence that nobody knows, with a comma; and more');
});
