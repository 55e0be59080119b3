"""The module on the CPU, with the small models of tests/vectors: test_python.py TOP."""
import array
import gc
import json
import math
import os
import pathlib
import re
import struct
import sys
import tempfile
import threading
import time
import unittest

import deltaic
from deltaic import Logits, Sampling, prune

TOP = pathlib.Path(sys.argv.pop(1))
NOVELIST = TOP / "models/novelist"
TINY = TOP / "tests/vectors/models/tiny_gated_deltanet"
CPU = deltaic.Device(-1)


def tensors(path):
    """{name: values} of a safetensors file with int32 and float32."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    found = {}
    for name, tensor in header.items():
        if tensor.get("dtype") in ("I32", "F32"):
            begin, end = tensor["data_offsets"]
            found[name] = array.array("if"[tensor["dtype"] == "F32"], data[8 + size + begin : 8 + size + end])
    return found, header["__metadata__"]


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.novelist, cls.tiny = deltaic.Model(NOVELIST, CPU), deltaic.Model(TINY, CPU)
        cls.reference, cls.metadata = tensors(TINY / "reference.safetensors")
        cls.ids = list(cls.reference["input_ids"])

    @classmethod
    def tearDownClass(cls):
        cls.novelist.close()
        cls.tiny.close()


class Generating(Models):
    def test_greedy_tokens_are_the_references(self):
        reference, _ = tensors(TOP / "tests/vectors/models/novelist.safetensors")
        prompt = list(reference["greedy.prompt"])
        made = self.novelist.generate(prompt, tokens=64)
        text = made.text()
        self.assertEqual(made.ids, list(reference["greedy.tokens"]))
        self.assertEqual(made.end, "tokens")
        whole = self.novelist.tokenizer.decode(prompt + made.ids, skip_special=True)
        self.assertTrue(whole.endswith(text))

    def test_text_streams(self):
        made = self.novelist.generate("The old house", tokens=8)
        first = next(made)
        self.assertTrue(first)
        self.assertLess(len(made.ids), 8)
        self.assertEqual(made.text(), "".join(self.novelist.generate("The old house", tokens=8))[len(first) :])

    def test_a_seed_repeats_and_another_does_not(self):
        def drawn(**fields):
            return self.novelist.generate("It was", tokens=24, temperature=1, **fields).text()

        self.assertEqual(drawn(seed=7), drawn(seed=7))
        self.assertNotEqual(drawn(seed=7), drawn(seed=8))
        self.assertNotEqual(drawn(), drawn())

    def test_it_ends_before_a_stop_string(self):
        text = self.novelist.generate("The old house", tokens=40).text()
        word = text.split()[6]
        made = self.novelist.generate("The old house", tokens=40, stop=[word, "no such words"])
        self.assertEqual(made.text(), text[: text.index(word)])
        self.assertEqual(made.end, "stop")

    def test_cancel_ends_it(self):
        made = self.novelist.generate("The old house", tokens=100000, temperature=1, ignore_eos=True)
        next(made)
        made.cancel()
        self.assertLessEqual(len(made.text()), 40)
        self.assertEqual(made.end, "cancelled")
        self.assertTrue(made.session.generate(" and", tokens=3).text())

    def test_cancel_of_a_prompt_from_another_thread(self):
        session = self.novelist.session()
        made = session.generate([5] * 200000, tokens=5)
        threading.Timer(0.3, made.cancel).start()
        start = time.monotonic()
        self.assertEqual(made.text(), "")
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(made.end, "cancelled")
        session.reset()
        self.assertTrue(session.generate("It was", tokens=3).text())

    def test_a_session_goes_on(self):
        session = self.novelist.session()
        first = session.generate("The old house", tokens=5)
        whole = first.text()
        whole += session.generate(tokens=5).text()
        self.assertEqual(whole, self.novelist.generate("The old house", tokens=10).text())


class Sessions(Models):
    def test_logits_are_the_references(self):
        rows = self.tiny.session().eval(self.ids, Logits.ALL)
        self.assertEqual(rows.shape, (len(self.ids), self.tiny.info.vocabulary))
        expected, width = self.reference["logits"], self.tiny.info.vocabulary
        wrong = scale = 0
        for row, position in enumerate(self.reference["positions"]):
            for column in range(width):
                want = expected[row * width + column]
                wrong += (rows[position, column] - want) ** 2
                scale += want**2
        self.assertLess(math.sqrt(wrong / scale), 1e-4)

    def test_logits_are_a_buffer(self):
        session = self.tiny.session()
        last = session.eval(self.ids, Logits.LAST)
        self.assertEqual((last.format, last.shape), ("f", (self.tiny.info.vocabulary,)))
        self.assertEqual(last.tolist(), session.logits().tolist())
        self.assertIsNone(session.eval(self.ids[:1]))

    def test_scores_are_the_references(self):
        text, nll = self.reference["eval_tokens"], []
        session = self.tiny.session()
        for at in range(0, len(text), 512):
            session.reset()
            nll += [-score for score in session.score(text[at : at + 512])]
        self.assertEqual(len(nll), 2044)
        self.assertAlmostEqual(sum(nll) / len(nll), float(self.metadata["nll"]), places=4)

    def test_saved_loaded_and_forked_states_go_on_alike(self):
        session = self.tiny.session()
        session.eval(self.ids)
        state, fork, other = session.save(), session.fork(), self.tiny.session()
        other.load(state)
        with tempfile.TemporaryDirectory() as folder:
            session.save_file(pathlib.Path(folder) / "state")
            third = self.tiny.session()
            third.load_file(pathlib.Path(folder) / "state")
        drawn = [[each.next() for _ in range(10)] for each in (session, fork, other, third)]
        self.assertEqual(drawn[1:], drawn[:1] * 3)
        self.assertEqual(session.position(), len(self.ids) + 10)

    def test_sequences_of_a_batch(self):
        session = self.tiny.session(sequences=3)
        session.eval_batch([(0, self.ids), (2, self.ids[:50])])
        session.copy(1, 0)
        seeds = [Sampling(temperature=1, seed=seed) for seed in (1, 1, 2)]
        drawn = [session.next_batch([0, 1, 2], seeds) for _ in range(8)]
        self.assertEqual([row[0] for row in drawn], [row[1] for row in drawn])
        self.assertNotEqual([row[0] for row in drawn], [row[2] for row in drawn])
        self.assertEqual([session.position(i) for i in range(3)], [len(self.ids) + 8, len(self.ids) + 8, 58])
        session.load(session.save(2), 0)
        self.assertEqual(session.position(0), 58)
        session.reset(1)
        self.assertEqual(session.position(1), 0)

    def test_a_cancel_is_an_exception(self):
        session = self.tiny.session()
        session.cancel()
        with self.assertRaises(deltaic.Cancelled):
            session.eval(self.ids)
        session.eval(self.ids)

    def test_objects_may_go_in_any_order(self):
        device = deltaic.Device(-1, threads=1)
        model = deltaic.Model(TINY, device)
        session = model.session()
        model.close()
        device.close()
        session.eval(self.ids)
        circle = [model, device, session]
        circle.append(circle)
        del model, device, session, circle
        gc.collect()
        with deltaic.Model(TINY, CPU).session() as session:
            session.eval([1])
        with self.assertRaisesRegex(ValueError, "Session is closed"):
            session.eval([1])


class Failures(Models):
    def test_a_failure_has_the_librarys_sentence(self):
        with self.assertRaisesRegex(deltaic.Error, "no/such/model") as caught:
            deltaic.Model("no/such/model", CPU)
        self.assertEqual(caught.exception.status, deltaic.Status.NOT_FOUND)
        with self.assertRaisesRegex(deltaic.InvalidArgument, "the vocabulary has"):
            self.tiny.session().eval([10**6])
        with self.assertRaises(deltaic.InvalidArgument):
            self.tiny.session(sequences=2**31)
        with self.assertRaises(deltaic.Error) as caught:
            self.tiny.session().next()
        self.assertEqual(caught.exception.status, deltaic.Status.BAD_STATE)

    def test_a_full_context_has_its_own(self):
        model = deltaic.Model(TOP / "tests/vectors/models/tiny_delta_net_global", CPU)
        with self.assertRaises(deltaic.ContextFull):
            model.session(context=16).eval([1] * 17)

    def test_numbers_that_c_would_wrap_are_refused(self):
        session = self.tiny.session()
        with self.assertRaises(OverflowError):
            session.eval([2**32 + 1])
        with self.assertRaises(OverflowError):
            Sampling(top_k=-1)
        with self.assertRaises(OverflowError):
            self.tiny.session(context=2**32)
        with self.assertRaises(ValueError):
            session.position(-1)
        with self.assertRaisesRegex(ValueError, "NUL"):
            deltaic.Model("models/novelist\0", CPU)
        with self.assertRaises(TypeError):
            session.eval("text")
        with self.assertRaises(TypeError):
            session.eval([1.5])
        with self.assertRaises(ValueError):
            session.eval([1], logits=7)
        for nothing in (session.eval, session.score):
            with self.assertRaises(deltaic.InvalidArgument):
                nothing([])
        with self.assertRaisesRegex(TypeError, "no field tempreature"):
            session.generate("a", tempreature=1)

    def test_a_progress_function_can_stop_and_fail(self):
        seen = []
        deltaic.Model(TINY, CPU, progress=lambda *args: seen.append(args))
        self.assertEqual(seen[-1][0], seen[-1][1])
        with self.assertRaises(deltaic.Cancelled):
            deltaic.Model(TINY, CPU, progress=lambda done, total: False)
        with self.assertRaises(ZeroDivisionError):
            deltaic.Model(TINY, CPU, progress=lambda done, total: 1 / 0)


class Texts(Models):
    def test_tokenizer(self):
        tokenizer = self.novelist.tokenizer
        text = "“Good evening,” said Mr. Hartley – twice.\0"
        ids = tokenizer.encode(text, special=False)
        self.assertEqual(tokenizer.decode(ids), text)
        self.assertEqual(tokenizer.encode(""), tokenizer.encode("", special=True))
        self.assertEqual(len(tokenizer), 4096)
        self.assertIsNone(tokenizer.find("no such token"))
        self.assertEqual(tokenizer.decode([tokenizer.find("the")]), "the")
        with deltaic.Decoder(tokenizer) as decoder:
            streamed = "".join(decoder.push(token) for token in ids) + decoder.finish()
        self.assertEqual(streamed, text)

    def test_templates(self):
        names = [template.info.name for template in deltaic.templates()]
        self.assertIn("qwen3", names)
        chat = deltaic.Template.named("qwen3")
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello <|im_end|>"}]
        text = chat.render(messages)
        self.assertIn("<|im_start|>user\nHello", text)
        self.assertTrue(text.endswith(chat.info.answer))
        ids = chat.encode(self.novelist.tokenizer, messages)
        self.assertEqual(self.novelist.tokenizer.decode(ids), text)
        part = chat.render(messages, first=1)
        self.assertTrue(text.endswith(part) and len(part) < len(text))
        with self.assertRaisesRegex(deltaic.Error, "nonsense"):
            deltaic.Template.named("nonsense")

    def test_devices(self):
        lines = []
        devices = deltaic.Context(log=lambda level, line: lines.append(line)).devices()
        self.assertEqual((devices[-1].index, devices[-1].kind), (-1, deltaic.DeviceKind.CPU))
        self.assertIn("CPU", CPU.info.name)
        self.assertEqual(CPU.info.uuid, bytes(16))
        for device in devices[:-1]:
            self.assertEqual(deltaic.Device(uuid=device.uuid, background=True).info.uuid, device.uuid)
            seen = []
            watched = deltaic.Device(uuid=device.uuid, compiling=lambda done: seen.append(done) or False)
            with self.assertRaises(deltaic.Cancelled):
                deltaic.Model(TINY, watched).session().eval(self.ids)
            self.assertEqual(len(seen), 1)

            with self.assertRaises(deltaic.Cancelled):
                deltaic.Model(TINY, watched).session().prepare()
            self.assertEqual(len(seen), 2)

            def fails(done):
                raise KeyError("compiling")

            with self.assertRaisesRegex(KeyError, "compiling"):
                deltaic.Model(TINY, deltaic.Device(uuid=device.uuid, compiling=fails)).session().eval(self.ids)
        deltaic.Model(TINY, CPU).session().prepare()
        self.assertEqual(CPU.compile_seconds, 0)
        with self.assertRaisesRegex(deltaic.Error, "no Vulkan device with the UUID ab01"):
            deltaic.Device(uuid=bytes([0xAB, 1] + 14 * [7]))
        info, memory = deltaic.inspect(NOVELIST)
        self.assertEqual((info.vocabulary, info.architecture), (4096, "gated_deltanet"))
        self.assertEqual(memory.weights_bytes, self.novelist.memory().weights_bytes)


class Pruning(Models):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name) / "smaller"

    def tearDown(self):
        self.folder.cleanup()

    def test_a_smaller_checkpoint(self):
        text = list(self.reference["eval_tokens"][:1024])
        statistics = prune.Statistics(TINY, window=64)
        statistics.calibrate(self.tiny, text)
        self.assertEqual(statistics.info.tokens, 1024)
        with tempfile.TemporaryDirectory() as folder:
            statistics.save(pathlib.Path(folder) / "statistics")
            again = prune.Statistics(TINY, load=pathlib.Path(folder) / "statistics")
        self.assertEqual(again.info, statistics.info)
        selection = prune.Selection(TINY, statistics, cut=0.5)
        self.assertTrue(all(head.keep == head.size // 2 == len(head.kept) for head in selection.heads))
        prune.check(TINY, self.out)
        with prune.Pruning(TINY, selection, self.out) as pruning:
            pruning.refit(CPU, self.tiny, text)
            self.assertEqual(deltaic.inspect(pruning.path)[0].key_size, 16)
            pruning.recover(text, window=128, batch=1)
            self.assertFalse(self.out.exists())
            pruning.commit()
        made = deltaic.Model(self.out, CPU)
        self.assertEqual((self.tiny.info.key_size, made.info.key_size), (32, 16))
        session = made.session()
        scores = session.score(text[:512])
        self.assertLess(-sum(scores) / len(scores), 2.5)

    def test_channels_by_their_gradients(self):
        text = list(self.reference["eval_tokens"][:128])
        statistics = prune.Statistics(TINY, window=64)
        statistics.calibrate_gradients(TINY, text)
        self.assertEqual((statistics.info.tokens, statistics.info.gradient_tokens), (0, 128))
        selection = prune.Selection(TINY, statistics, method="grad", cut=0.5)
        self.assertTrue(all(len(head.kept) == head.size // 2 for head in selection.heads))

    def test_nothing_stays_without_commit(self):
        selection = prune.Selection(TINY, method="l1", keep=8)
        prune.Pruning(TINY, selection, self.out).close()
        self.assertEqual(list(self.out.parent.iterdir()), [])
        with self.assertRaises(deltaic.Error):
            prune.Selection(TINY, method="no such method", cut=0.5)

    def test_given_channels(self):
        heads = prune.Selection(TINY, method="l1", keep=4).heads
        selection = prune.Selection(TINY, given=[[0, 3, 5]] * len(heads))
        self.assertEqual(selection.heads[-1].kept, [0, 3, 5])

    def test_methods_and_rank(self):
        self.assertIn("drrqr", [method.name for method in prune.methods()])
        ranks, values = prune.rank([[3, 0, 0], [0, 4, 0]])
        self.assertEqual(ranks.rank, 2)
        self.assertAlmostEqual(values[0], 4)
        self.assertAlmostEqual(ranks.stable_rank, 25 / 16)


class Documentation(unittest.TestCase):
    def test_the_programs_in_docs_run(self):
        text = (TOP / "docs/python.md").read_text()
        programs = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
        self.assertGreater(len(programs), 2)
        os.chdir(TOP)
        scope = {}
        for program in programs:
            exec(compile(program, "docs/python.md", "exec"), scope)


if __name__ == "__main__":
    unittest.main(verbosity=2)
