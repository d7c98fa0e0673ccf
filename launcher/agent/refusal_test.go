//go:build linux

package agent

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

// elfFor returns the smallest ELF file that names a loader.
func elfFor(loader string) []byte {
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), // executable, x86-64
		uint64(0x400000), uint64(64), uint64(0), uint32(0), // entry, program headers, no sections
		uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0),
		uint32(3), uint32(4), uint64(120), uint64(0), uint64(0), // PT_INTERP at 120
		uint64(len(loader) + 1), uint64(len(loader) + 1), uint64(1),
	} {
		binary.Write(&b, binary.LittleEndian, field) // into memory
	}
	b.WriteString(loader + "\x00")
	return b.Bytes()
}

// blob makes content a shipped program, and makes that the command.
func (h *testHost) blob(content []byte, base string) {
	h.t.Helper()
	sum := strings.Repeat("0b", 32)
	path := filepath.Join(h.home, ".plx", "blobs", sum)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o700); err != nil {
		h.t.Fatal(err)
	}
	h.spec.Command.Name, h.spec.Command.Blob, h.spec.Command.Base = "", sum, protocol.Raw(base)
}

func TestShippedProgramsAreRefusedByName(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		setup   protocol.Raw
		env     protocol.Raw
		cause   string
	}{
		"other machine":      {content: "\x7fELF nonsense", cause: "train: not a program for this machine"},
		"Windows":            {content: "#!/bin/sh\r\n", cause: "train: the file has Windows line ends"},
		"loader":             {content: string(elfFor("/lib/ld-nowhere.so.2")), cause: "train: its loader /lib/ld-nowhere.so.2"},
		"loader after setup": {content: string(elfFor("/lib/ld-nowhere.so.2")), setup: ":", cause: "train: its loader /lib/ld-nowhere.so.2"},
		"too long":           {content: "#!/bin/sh\n", env: protocol.Raw("DATA=" + strings.Repeat("x", 32*os.Getpagesize())), cause: "train: the variable DATA has"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 1)
			h.blob([]byte(test.content), "train")
			h.spec.Command.Setup = test.setup
			if test.env != "" {
				h.spec.Env = append(h.spec.Env, test.env)
			}
			l, _ := h.launch()
			e := h.exitOf(worker(0))
			if e.Code != 126 || !strings.HasPrefix(e.Cause, test.cause) || strings.Contains(e.Cause, "blobs") {
				t.Errorf("%+v", e)
			}
			l.end(h, 0)
		})
	}
}

func TestBrokenSetupIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		setup protocol.Raw
		path  string // bash is on it, or not
		says  []string
		code  int
	}{
		"bash":           {"if (", "", []string{"plx: --setup: eval: line ", "syntax error", "plx: --setup ended with status "}, 2},
		"sh":             {"if (", "none", []string{"plx: --setup: ", "yntax error"}, 2},
		"open quote":     {"echo 'x", "", []string{"plx: --setup: eval: line ", "plx: --setup ended with status "}, 2},
		"open line":      {`false \`, "", []string{"plx: --setup ended with status 1\n"}, 1},
		"quotes inside":  {`[ 'a b' = "a b" ]`, "", []string{}, 3},
		"a comment last": {"true # no more", "", []string{}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 1, "exit", "3")
			h.spec.Command.Setup = test.setup
			if test.path != "" {
				h.spec.Env = append(h.spec.Env, protocol.Raw("PATH="+filepath.Join(h.home, test.path)))
			}
			l, _ := h.launch()
			e := h.exitOf(worker(0))
			l.end(h, 0)
			text := h.spool("worker-0.stderr")
			for _, want := range test.says {
				if !strings.Contains(text, want) {
					t.Errorf("says %q, want %q", text, want)
				}
			}
			if e.Code != test.code || len(test.says) == 0 && text != "" {
				t.Errorf("exit status %d, want %d; says %q", e.Code, test.code, text)
			}
		})
	}
}

func TestRemovedFolderIsSaid(t *testing.T) {
	for name, remove := range map[string]bool{"removed": true, "kept": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, l, _ := ready(t, "wait")
			if remove {
				if err := os.RemoveAll(filepath.Dir(string(h.folder()))); err != nil {
					t.Fatal(err)
				}
			}
			l.send(protocol.Message{End: &protocol.End{Verdict: protocol.Verdict{Reason: "done"}}})
			said := 0
			l.wait("the verdict", func(m protocol.Message) bool {
				if strings.Contains(m.Notice, "was removed while it ran: its logs are incomplete") {
					said++
				}
				return m.State != nil && m.State.Phase == protocol.Over
			})
			if said > 1 || (said == 1) != remove {
				t.Errorf("said %d times", said)
			}
			<-l.ended
		})
	}
}
