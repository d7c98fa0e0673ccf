package ssh

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

func FuzzQuote(f *testing.F) {
	for _, seed := range []string{"", "a", "it's", "'", "''", "$HOME `x` \\ \"", "a\nb\n", "-n", "\xff\xfe", "!x", "*", "~"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		if strings.IndexByte(arg, 0) >= 0 {
			t.Skip("no shell takes NUL")
		}
		got, err := exec.Command("/bin/sh", "-c", "printf %s "+Quote(arg)).Output()
		if err != nil || string(got) != arg {
			t.Errorf("%q came back as %q, %v", arg, got, err)
		}
	})
}

// FuzzWrap runs the wrapped command line in a login shell and checks that the
// script arrives unchanged.
func FuzzWrap(f *testing.F) {
	for _, seed := range []string{"", "a'b", "\\0101\\n\\\\", "!!", "line\nline\n", "\x01\x7f\xff", "%s%d", "\\c after"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		line, err := wrap("printf %s "+Quote(arg), "SENTINEL")
		if err != nil {
			return
		}
		got, err := exec.Command("/bin/sh", "-c", line).Output()
		if err != nil || string(got) != "SENTINEL\n"+arg {
			t.Errorf("%q came back as %q, %v", arg, got, err)
		}
	})
}

// Each login shell installed on this machine runs the script in /bin/sh
// unchanged.
func TestLoginShells(t *testing.T) {
	every := make([]byte, 0, 255)
	for b := 1; b < 256; b++ {
		every = append(every, byte(b))
	}
	script := "cat; printf %s " + Quote(string(every)+"\\\\ \\' '' !x !! $y `z` %s") + "; exit 3"
	line, err := wrap(script, newSentinel())
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, shell := range []string{"sh", "bash", "dash", "ksh", "mksh", "zsh", "csh", "tcsh", "fish", "yash"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		tried++
		cmd := exec.Command(path, "-c", line)
		cmd.Stdin = strings.NewReader("in")
		got, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Errorf("%s: %v, want exit status 3", shell, err)
		}
		if !bytes.HasSuffix(got, []byte("\nin"+string(every)+"\\\\ \\' '' !x !! $y `z` %s")) {
			t.Errorf("%s: the script gave %q", shell, got)
		}
	}
	if tried < 2 {
		t.Errorf("only %d shells are installed", tried)
	}
}

// A command that no shell can run, such as one with a NUL byte, is refused
// before it is sent.
func TestInvalidCommandsAreRefused(t *testing.T) {
	longest := strings.Repeat("a", maxCommand)
	for {
		line, err := wrap(longest, "plx-sentinel")
		if err == nil {
			if len(line) != maxCommand {
				t.Errorf("the longest line has %d bytes, want %d", len(line), maxCommand)
			}
			break
		}
		longest = longest[1:]
	}
	for script, want := range map[string]string{
		"\x00":         "the command has a NUL byte",
		"\x00true":     "the command has a NUL byte",
		"true\x00":     "the command has a NUL byte",
		longest + "a":  "the command is too long: 65537 bytes as sent, 65536 at most",
		longest + "'":  "the command is too long: 65541 bytes as sent, 65536 at most",
		longest + "\n": "the command is too long: 65541 bytes as sent, 65536 at most",
	} {
		if _, err := wrap(script, "plx-sentinel"); err == nil || err.Error() != want {
			t.Errorf("%.10q, %d bytes: got %v, want %q", script, len(script), err, want)
		}
	}
}

// TestCleanWriter writes a stream in pieces of random length.
func TestCleanWriter(t *testing.T) {
	const sentinel = "plx-sentinel"
	for _, noise := range []string{"", "hello\n", "no end", "plx-sent", "plx-sentinel", "\x00\xff", "plx-sentinel plx-sentinel"} {
		for range 50 {
			stream := []byte(noise + sentinel + "\nown plx-sentinel\nbytes")
			var got bytes.Buffer
			w := newCleanWriter(&got, sentinel)
			for len(stream) > 0 {
				n := 1 + rand.IntN(len(stream))
				if _, err := w.Write(stream[:n]); err != nil {
					t.Fatal(err)
				}
				stream = stream[n:]
			}
			if found, dropped, sample := w.state(); !found || dropped != len(noise) || sample != noise || got.String() != "own plx-sentinel\nbytes" {
				t.Fatalf("noise %q: found %v, dropped %d %q, got %q", noise, found, dropped, sample, got.String())
			}
		}
	}
}

func TestCleanWriterLimitsNoise(t *testing.T) {
	w := newCleanWriter(nil, "plx-sentinel")
	var err error
	written := 0
	for chunk := make([]byte, 10000); err == nil && written < 3*maxNoise; written += len(chunk) {
		_, err = w.Write(chunk)
	}
	if !errors.Is(err, errNoise) || written > maxNoise+30000 {
		t.Errorf("after %d bytes: %v", written, err)
	}
}
