package metrics

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// text returns a sample as "name=value" texts, sorted by name.
func text(s Sample) string {
	var all []string
	for _, v := range s {
		all = append(all, fmt.Sprintf("%s=%.6g", v.Name, float64(v.Number)))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// The lines are real output of the named programs and libraries.
func TestLineFindsMetrics(t *testing.T) {
	for _, c := range []struct{ format, line, want string }{
		{"plain", "loss: 0.31", "loss=0.31"},
		{"plain", "loss=0.31", "loss=0.31"},
		{"plain", "Loss 3.1e-01", "loss=0.31"},
		{"plain", "loss=.31, acc=95.2%", "acc=95.2 loss=0.31"},
		{"plain", "step 100", "step=100"},
		{"plain", "epoch 3", "epoch=3"},
		{"plain", "Epoch 3/10", "epoch=3 epochs=10"},
		{"plain", "Step: 1,200, Loss: -1.5e+3", "loss=-1500 step=1200"},
		{"plain", "[100/1000] loss 0.31", "loss=0.31 step=100 steps=1000"},
		{"plain", "iter 100: loss 2.3021, time 120.51ms, mfu 1.25%", "loss=2.3021 mfu=1.25 step=100"},
		{"plain", "step 250: train loss 1.9512, val loss 2.0133", "step=250 train_loss=1.9512 val_loss=2.0133"},
		{"plain", "Validation Accuracy = 0.9, learning rate: 1e-4, grad norm: 1.2", "grad_norm=1.2 learning_rate=0.0001 validation_accuracy=0.9"},
		{"plain", "4.5 it/s", "steps_per_second=4.5"},
		{"plain", "words/s 1234 | 120 ms/step | 300.5 tokens/s", "steps_per_second=8.33333 tokens_per_second=300.5 words_per_second=1234"},
		{"plain", `  "eval_loss": 0.31,`, "eval_loss=0.31"},
		{"plain", "loss: tensor(0.3100, device='cuda:0', grad_fn=<NllLossBackward0>)", "loss=0.31"},
		{"plain", "tf.Tensor loss = tf.Tensor(0.31, shape=(), dtype=float32)", "loss=0.31"},
		{"not finite", "loss: nan", "loss=NaN"},
		{"not finite", "step 7 loss=-inf acc=NaN", "acc=NaN loss=-Inf step=7"},
		{"not finite", "Loss: Infinity lr: 1e999", "loss=+Inf lr=+Inf"},
		{"PyTorch's tutorial", "Epoch [3/10], Step [100/600], Loss: 0.3100", "epoch=3 epochs=10 loss=0.31 step=100 steps=600"},
		{"PyTorch's MNIST", "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.285321", "epoch=1 loss=2.28532 step=640 steps=60000"},
		{"PyTorch's ImageNet", "Epoch: [0][  10/5005]\tTime  0.541 ( 1.012)\tData  0.000 ( 0.384)\tLoss 6.9871e+00 (7.0012e+00)\tAcc@1   0.00 (  0.14)", "acc@1=0 epoch=0 loss=6.9871 step=10 steps=5005"},
		{"Megatron", " iteration      100/  500000 | consumed samples:        25600 | elapsed time per iteration (ms): 512.3 | learning rate: 1.500E-04 | global batch size:   256 | lm loss: 6.900E+00 | loss scale: 1.0 | grad norm: 1.234 |",
			"grad_norm=1.234 learning_rate=0.00015 lm_loss=6.9 step=100 steps=500000"},
		{"fairseq", "epoch 001:    100 / 1000 loss=4.5, ppl=22.63, wps=31000, ups=2.1", "epoch=1 loss=4.5 ppl=22.63 step=100 steps=1000 wps=31000"},
		{"Detectron2", "[11/30 12:00:00 d2.utils.events]:  eta: 0:12:34  iter: 99  total_loss: 0.31  time: 0.3512  lr: 0.001  max_mem: 1234M", "lr=0.001 step=99 total_loss=0.31"},
		{"tqdm", "Epoch 2:  45%|####5     | 45/100 [00:10<00:12,  4.50it/s, loss=0.31]", "epoch=2 loss=0.31 step=45 steps=100 steps_per_second=4.5"},
		{"tqdm", " 45%|████▌     | 45/100 [01:10<02:12,  2.00s/it, foo=7, bar=1.5e-3]", "bar=0.0015 foo=7 step=45 steps=100 steps_per_second=0.5"},
		{"tqdm", "  0%|          | 0/100 [00:00<?, ?it/s]", "step=0 steps=100"},
		{"tqdm", "45it [00:10,  4.50it/s, loss=nan]", "loss=NaN step=45 steps_per_second=4.5"},
		{"tqdm", "\r 44%|####4     | 44/100 [00:10<00:12,  4.50it/s]\r 45%|####5     | 45/100 [00:10<00:12,  4.75it/s]\r\n", "step=45 steps=100 steps_per_second=4.75"},
		{"Lightning", "Epoch 2:  45%|████▌     | 45/100 [00:10<00:12,  4.50it/s, loss=0.31, v_num=3, train_acc_step=0.900]", "epoch=2 loss=0.31 step=45 steps=100 steps_per_second=4.5 train_acc_step=0.9"},
		{"Lightning, Rich", "Epoch 2/9  ━━━━━━━╸━━━━━━━━ 45/100 0:00:10 • 0:00:12 4.50it/s v_num: 0.000 train_loss: 0.31", "epoch=2 epochs=9 step=45 steps=100 steps_per_second=4.5 train_loss=0.31"},
		{"Keras 2", "45/100 [============>.................] - ETA: 12s - loss: 0.3100 - accuracy: 0.9000", "accuracy=0.9 loss=0.31 step=45 steps=100"},
		{"Keras 2", "100/100 [==============================] - 12s 120ms/step - loss: 0.3100 - my_metric: 0.5 - val_loss: 0.4000", "loss=0.31 my_metric=0.5 step=100 steps=100 steps_per_second=8.33333 val_loss=0.4"},
		{"Keras 2, verbose=2", "100/100 - 12s - loss: 0.3100 - 12s/epoch - 120ms/step", "loss=0.31 step=100 steps=100 steps_per_second=8.33333"},
		{"Keras 3", "\b\b\b\r\x1b[1m 45/100\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━━━\x1b[0m \x1b[1m12s\x1b[0m 500us/step - accuracy: 0.9000 - loss: 0.3100", "accuracy=0.9 loss=0.31 step=45 steps=100 steps_per_second=2000"},
		{"Hugging Face", "{'loss': 0.31, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.5}", "epoch=0.5 grad_norm=1.2 learning_rate=5e-05 loss=0.31"},
		{"Hugging Face", "{'loss': '0.31', 'grad_norm': 'nan', 'learning_rate': '5e-05', 'epoch': '0.5'}", "epoch=0.5 grad_norm=NaN learning_rate=5e-05 loss=0.31"},
		{"Hugging Face", "{'eval_loss': np.float32(0.31), 'eval_runtime': 12.5, 'eval_mine': tensor(2., device='cuda:0'), 'epoch': 1.0}", "epoch=1 eval_loss=0.31 eval_mine=2 eval_runtime=12.5"},
		{"JSON", `{"step":100,"loss":0.31}`, "loss=0.31 step=100"},
		{"JSON", `2026-11-30 12:00:01 INFO {"time": 1714564800.25, "pid": 77, "global_step": 100, "loss": NaN, "tags": ["a", {"b": 3}], "val": {"loss": 0.4, "deep": {"x": 1}}, "msg": "port: 8080", "ok": true, "none": null}`, "loss=NaN step=100 val/loss=0.4"},
		{"JSON", `{"step": 1.5, "epoch": 2, "loss": "a\"b", "acc": -Infinity, "loss2": 0.3`, "acc=-Inf epoch=2 loss2=0.3"},
		{"plx's examples", "step 100 | train_loss 0.3100 | test_loss 0.4000 | step time 2.01ms", "step=100 test_loss=0.4 train_loss=0.31"},
		{"plx's examples", "step 7 | loss 0.3100 | accuracy 0.900 | gradient norm 2.31", "accuracy=0.9 gradient_norm=2.31 loss=0.31 step=7"},
		{"plx's trainer", "plx: step 120: 3.4 steps per second", "step=120 steps_per_second=3.4"},
		{"colours", "\x1b[32mINFO\x1b[0m loss: \x1b[1;31m0.31\x1b[0m", "loss=0.31"},
	} {
		if got := text(Line([]byte(c.line), nil)); got != c.want {
			t.Errorf("%s: %q:\n got %s\nwant %s", c.format, c.line, got, c.want)
		}
	}
}

func TestLineIgnoresOtherNumbers(t *testing.T) {
	for _, line := range []string{
		"", "\n", " ", "loss", "loss:", "loss: ", "step", "a", "=", ":", "[", "{", "{'", "{'loss'", "{'loss':", "nan", "-", "+", ".", "loss -", "loss .", "loss e5",
		"2026-11-30 12:00:01,123 INFO root: listening on 127.0.0.1:8080", "[11/30 12:00:00] starting", "loss 2026-11-30", "step 12:34:56", "loss: 10.0.0.1",
		"loss 1.2.3", "torch 2.1.0+cu121, loss 2.1.0+cu121", "loss: 12MB", "loss 3/4", "accuracy 5k", "lr v2", "step 0x10", "step -1", "step 1.5",
		"port: 8080", "pid=77", "batch size: 64", "batch_size=64", "batch: 64", "it 5 times", "in 12 steps", "found 3 steps", "12 files/s", "6.3MB/s",
		"model.safetensors:  45%|####5     | 450M/1.00G [00:10<00:12, 45.0MB/s]", "Map:  45%|####5     | 450/1000 [00:01<00:02, 450.00 examples/s]",
		"Downloading (1/3)", "[12/345] Building CXX object a.o", "1/2 of the files", "45/100 done", "ETA: 1:23", "loss is nan, giving up", "loss: nano", "loss: info", "loss: ian", "loss: nnf 3",
		`{"time":1714564800.25,"port":8080,"msg":"step"}`, "{'a': 1}", "{}", "glossy 5", "Loss of connection", "lr = cosine", "nanoseconds", "info: loss information",
		"steps: 100", "iterations=5", "step 99999999999999999999", "loss 00000000000000000000000000000000000000000000000000000000000000000001",
	} {
		if got := Line([]byte(line), nil); got != nil {
			t.Errorf("%q: %s", line, text(got))
		}
	}
}

func TestLineIsBounded(t *testing.T) {
	long := strings.Repeat("x", maxLine) + " loss: 0.31"
	if got := Line([]byte(long), nil); got != nil {
		t.Errorf("%s behind %d bytes", text(got), maxLine)
	}
	var many strings.Builder
	for i := range 2 * maxValues {
		fmt.Fprintf(&many, "loss%d/loss=%d ", i, i)
	}
	if got := Line([]byte(many.String()), nil); len(got) != maxValues {
		t.Errorf("%d values of a line, want %d", len(got), maxValues)
	}
	deep := `{"loss":1,"a":` + strings.Repeat(`{"a":`, maxLine)
	if got := text(Line([]byte(deep), nil)); got != "loss=1" {
		t.Errorf("deep record: %s", got)
	}
}

func TestParsePatterns(t *testing.T) {
	for source, want := range map[string]string{
		"loss":                  `metric "loss": want NAME=REGEXP`,
		"loss=":                 `want NAME=REGEXP`,
		"=LOSS ([0-9.]+)":       `bad name ""`,
		"9loss=([0-9.]+)":       `bad name "9loss"`,
		"a b=([0-9.]+)":         `bad name "a b"`,
		"loss=LOSS [0-9.]+":     `metric loss: the pattern LOSS [0-9.]+ has 0 groups, want one`,
		"loss=(LOSS) ([0-9.]+)": `has 2 groups, want one, around the number: such as 'LOSS ([0-9.]+)'; (?:...) groups without capturing`,
		"loss=LOSS ([0-9.+)":    "metric loss: error parsing regexp: missing closing ]",
		"loss=(" + strings.Repeat("a", maxPattern) + ")": "at most 1024 are allowed",
	} {
		if _, err := parsePattern(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", source, err, want)
		}
	}
	var patterns []Pattern
	for _, source := range []string{`loss=LOSS ([-0-9.a-z]+)`, `top=(?:best|top)=(\S+)`} {
		p, err := parsePattern(source)
		if err != nil {
			t.Fatal(err)
		}
		patterns = append(patterns, p)
	}
	for line, want := range map[string]string{
		"LOSS 0.31":                 "loss=0.31",
		"loss: 0.5, LOSS 0.31":      "loss=0.31",
		"LOSS nan top=1e3":          "loss=NaN top=1000",
		"\x1b[1mbest=7\x1b[0m":      "top=7",
		"LOSS abc, top=12MB":        "",
		"step 3, best=4":            "step=3 top=4",
		"loss: 0.5, no other value": "loss=0.5",
	} {
		if got := text(Line([]byte(line), patterns)); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// For any input, the number of metrics is bounded, their names are valid, and
// steps are natural numbers.
func FuzzLine(f *testing.F) {
	for _, line := range []string{"Epoch 2:  45%|####5     | 45/100 [00:10<00:12,  4.50it/s, loss=0.31]", "45/100 [==>..] - ETA: 12s - loss: 0.31",
		"{'loss': '0.31', 'a': tensor(2., device='cuda:0'), 'b': [1, {'c': 2}]}", "\x1b[1mstep\x1b[0m 1,200 loss: -inf 3 ms/step", "[1/2] loss tensor(1)"} {
		f.Add([]byte(line))
	}
	pattern, err := parsePattern("x=x([0-9]+)")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		s := Line(line, []Pattern{pattern})
		if !bytes.Equal(line, before) {
			t.Fatal("the line was changed")
		}
		if len(s) > maxValues {
			t.Fatalf("%d values", len(s))
		}
		names := map[string]bool{}
		for _, v := range s {
			if names[v.Name] || !validName(v.Name) && v.Name[0] != '_' {
				t.Fatalf("name %q of %q", v.Name, line)
			}
			names[v.Name] = true
			if n := float64(v.Number); v.Name == Step && (n < 0 || n > maxCount || n != math.Trunc(n)) {
				t.Fatalf("step %v of %q", n, line)
			}
		}
	})
}

var lines = map[string]string{
	"text":     "INFO:root: the worker has opened a connection to its peers and waits for them to answer\n",
	"numbers":  "2026-11-30 12:00:01,123 INFO connection 17 from 10.1.2.3:45678 closed after 12 messages, 4.5 kB\n",
	"match":    "step 100 | loss 0.3100 | accuracy 0.900\n",
	"tqdm":     "Epoch 2:  45%|####5     | 45/100 [00:10<00:12,  4.50it/s, loss=0.31]\n",
	"json":     `{"step":100,"loss":0.31,"lr":1e-4}` + "\n",
	"keras3":   "\x1b[1m 45/100\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━━━\x1b[0m \x1b[1m12s\x1b[0m 120ms/step - accuracy: 0.9000 - loss: 0.3100\n",
	"language": "nothing is in it, nor in any other of its lines, not even now: nobody needs infinite information\n",
}

func BenchmarkLine(b *testing.B) {
	for name, line := range lines {
		b.Run(name, func(b *testing.B) {
			text := []byte(line)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				Line(text, nil)
			}
		})
	}
}
