//go:build linux

package supervisor

import (
	"strings"
	"testing"
	"testing/iotest"
)

// crashes are crash reports as Go 1.26 prints them.
var crashes = []struct{ text, want string }{
	{"panic: no such table\n\tsecond line\n\ngoroutine 22 [running]:\nmain.main.func1()\n\t/tmp/p.go:7 +0x39\ncreated by main.main in goroutine 1\n\t/tmp/p.go:7 +0x1c6\n",
		"panic: no such table (p.go:7, in main.main.func1)"},
	{"step 3\npanic: assignment to entry in nil map [recovered]\n\tpanic: again: it\n\ngoroutine 1 [running]:\npanic({0x4b0460?, 0x582240?})\n\t/usr/local/go/src/runtime/panic.go:860 +0x13a\nmain.(*s).load(...)\n\t/tmp/p.go:4\n",
		"panic: assignment to entry in nil map [recovered] (p.go:4, in main.(*s).load)"},
	{"fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [sync.Mutex.Lock]:\ninternal/sync.runtime_SemacquireMutex(0x7fc42c09b108?, 0x70?, 0x588f00?)\n\t/usr/local/go/src/runtime/sema.go:95 +0x25\nsync.(*Mutex).Lock(...)\n\t/usr/local/go/src/sync/mutex.go:46\nexample.com/train/store.open({0x5, 0x7})\n\t/home/ann/store.go:9 +0x18c\n",
		"fatal error: all goroutines are asleep - deadlock! (store.go:9, in store.open)"},
	{"panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:\nruntime.main()\n\t/x/proc.go:1 +0x1\n\ngoroutine 2 [select]:\nmain.other()\n\t/tmp/p.go:3 +0x1\n",
		"panic: runtime error: index out of range [3] with length 3"},
	{"fatal error: runtime: out of memory\n\nruntime stack:\nruntime.throw({0x1, 0x2})\n\t/x/panic.go:1 +0x1\n\ngoroutine 1 [running]:\nmain.main()\n\t/tmp/p.go:5 +0x1\n",
		"fatal error: runtime: out of memory (p.go:5, in main.main)"},
	{"panic: first, and recovered\n\ngoroutine 1 [running]:\nmain.a()\n\t/tmp/a.go:1 +0x1\n\npanic: second\n\ngoroutine 1 [running]:\nmain.b()\n\t/tmp/b.go:2 +0x1\n",
		"panic: second (b.go:2, in main.b)"},
	{"panic: \x1b[31mred\n\ngoroutine 1 [running]:\n", "panic: \x1b[31mred"},
	{"panic: is what I print\nstep 4\n", ""},
	{"I said panic: no\n\ngoroutine 1 [running]:\n", ""},
	{"panic: " + strings.Repeat("x", 1<<20) + "\n\ngoroutine 1 [running]:\n", "panic: " + strings.Repeat("x", maxCause-len("panic: "))},
	{"", ""},
}

func TestCrash(t *testing.T) {
	for _, c := range crashes {
		var whole, pieces crash
		whole.read([]byte(c.text))
		buf, r := make([]byte, 1), iotest.OneByteReader(strings.NewReader(c.text))
		for n, err := r.Read(buf); err == nil; n, err = r.Read(buf) {
			pieces.read(buf[:n])
		}
		if whole.found != c.want || pieces.found != c.want {
			t.Errorf("%.60q: %q, in pieces %q, want %q", c.text, whole.found, pieces.found, c.want)
		}
	}
}

func BenchmarkCrash(b *testing.B) {
	text := []byte(strings.Repeat("epoch 3 step 1200: loss 0.125, 310 rows/s, and some more of that kind\n", 1<<10))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var c crash
		c.read(text)
	}
}
