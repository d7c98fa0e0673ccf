//go:build linux

package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const traceback = `Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 346, in wrapper
    return f(*args, **kwargs)
  File "train.py", line 7, in main
    raise ValueError("no data")
ValueError: no data
`

func quoted(text string) string {
	return `"` + strings.NewReplacer("\n", `\n`, `"`, `\"`).Replace(text) + `"`
}

func TestParseComplaint(t *testing.T) {
	full := `{"message": {"message": "ValueError: no data", "extraInfo": {"py_callstack": ` + quoted(traceback) + `, "timestamp": "1700000000"}}}`
	for _, c := range []struct {
		name, text string
		want       complaint
	}{
		{"torch's", full, complaint{"ValueError: no data (train.py:7, in main)", traceback}},
		{"of a program that plx sent", strings.ReplaceAll(full, "train.py", "/root/.plx/blobs/"+strings.Repeat("0a", 32)), complaint{"ValueError: no data (line 7, in main)",
			strings.ReplaceAll(traceback, "train.py", "/root/.plx/blobs/"+strings.Repeat("0a", 32))}},
		{"with an exit code", `{"message": {"message": "ValueError: x", "errorCode": 3, "extraInfo": {"timestamp": 1}}}`, complaint{"ValueError: x", ""}},
		{"a text alone", `{"message": "out of memory"}`, complaint{"out of memory", ""}},
		{"two lines", `{"message": "first\nsecond"}`, complaint{"first ...", ""}},
		{"a line end", `{"message": "first\n"}`, complaint{"first", ""}},
		{"control characters", `{"message": "\u001b[31mred\u0007"}`, complaint{"\x1b[31mred\a", ""}},
		{"no message", `{"message": {"extraInfo": {"py_callstack": "Traceback"}}}`, complaint{"", "Traceback"}},
		{"of another kind", `{"message": 7}`, complaint{}},
		{"another file", `{"error": "x"}`, complaint{}},
		{"half", full[:len(full)/2], complaint{}},
		{"not JSON", "Traceback (most recent call last):", complaint{}},
		{"empty", "", complaint{}},
		{"bytes", "\x00\xff\xfe", complaint{}},
	} {
		if got := parseComplaint([]byte(c.text)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	long := parseComplaint([]byte(`{"message": {"message": "` + strings.Repeat("ä", maxCause) + `", "extraInfo": {"py_callstack": ` + quoted(strings.Repeat("line\n", tailSize)) + `}}}`))
	if len(long.cause) > maxCause+4 || !strings.HasSuffix(long.cause, "ä ...") || !utf8.ValidString(long.cause) {
		t.Errorf("a long message gives %d bytes: %q", len(long.cause), long.cause)
	}
	if len(long.traceback) > tailSize || !strings.HasPrefix(long.traceback, "line\n") {
		t.Errorf("a long traceback gives %d bytes, %.10q", len(long.traceback), long.traceback)
	}
}

func TestBlamesPeer(t *testing.T) {
	many := strings.Repeat("step\n", 9)
	for tail, want := range map[string]bool{
		traceback: false,
		"":        false,
		"RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.77.0.2]:9629\n":                   true,
		"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error [::1]:1: Connection reset by peer": true,
		"Last error:\nNET/Socket : remote process exited or there was a network error\n":                                  true,
		"requests.exceptions.ConnectionError: Connection reset by peer\n":                                                 false,
		"RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [h]:1\n" + many + traceback:           false,
	} {
		if blamesPeer(tail) != want {
			t.Errorf("%q: %v", tail, !want)
		}
	}
}

func TestReadComplaint(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	write := func(path string, text []byte) string {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(good, []byte(`{"message": "x"}`))
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	if got := readComplaint(good); got.cause != "x" {
		t.Errorf("%+v", got)
	}
	huge := append([]byte(`{"message": "`), make([]byte, maxErrorFile)...)
	for _, path := range []string{filepath.Join(dir, "none"), dir, fifo, link, write(filepath.Join(dir, "huge"), huge)} {
		if got := readComplaint(path); got != (complaint{}) {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func FuzzParseComplaint(f *testing.F) {
	f.Add([]byte(`{"message": {"message": "x", "extraInfo": {"py_callstack": "File \"a\", line 1, in b"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := parseComplaint(text)
		if strings.Contains(c.cause, "\n") || len(c.cause) > 3*maxCause || len(c.traceback) > tailSize {
			t.Errorf("%q", c)
		}
	})
}
