//go:build linux

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// blob stores content as a program that plx has sent, and makes it the job's
// command.
func (h *testHost) blob(content []byte, base string) {
	h.t.Helper()
	sum := strings.Repeat("0b", 32)
	path := filepath.Join(h.home, ".plx", "blobs", sum)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := executable.Write(path, content, 0o700); err != nil {
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
		"other machine": {content: "\x7fELF nonsense", cause: "train: not a program for this machine"},
		"interpreter":   {content: "#!/nowhere/sh\n", cause: "train: its interpreter /nowhere/sh is not on this host"},
		"after setup":   {content: "#!/nowhere/sh\n", setup: ":", cause: "train: its interpreter /nowhere/sh is not on this host"},
		"too long":      {content: "#!/bin/sh\n", env: protocol.Raw("DATA=" + strings.Repeat("x", 32*os.Getpagesize())), cause: "train: the variable DATA has"},
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
		path  string // PATH, with or without bash
		says  []string
		code  int
	}{
		"bash":           {"if (", "", []string{"plx: --setup: eval: line ", "syntax error", "plx: --setup ended with status "}, 2},
		"sh":             {"if (", "none", []string{"plx: --setup: ", "yntax error"}, 2},
		"open quote":     {"echo 'x", "", []string{"plx: --setup: eval: line ", "plx: --setup ended with status "}, 2},
		"open line":      {`false \`, "", []string{"plx: --setup ended with status 1\n"}, 1},
		"no conda":       {"source ~/none.bashrc; conda activate x", "", []string{"plx: --setup ended with status 127\nplx: --setup: hint: start-up files such as .bashrc", `'eval "$(~/miniconda3/bin/conda shell.bash hook)" && conda activate NAME'`}, 127},
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

func TestRemovedJobFolderIsReported(t *testing.T) {
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
			if left, err := process.OfJob(h.spec.Job, ""); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}
