// Package via reaches one host by a command that gives the standard input and output of a
// shell there, as "kubectl exec -i POD -- /bin/sh" does.
//
//	client, err := via.Dial(ctx, via.Config{Command: "docker exec -i {host}", Host: "web", Agent: agent})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// Dial talks to the shell until plx itself runs there, as "plx agent serve". From then on
// the pipe is a connection of SSH like any other: package ssh speaks on this side, package
// sshserver on the other. So all commands of plx share one pipe, a silent pipe is
// noticed, and nothing depends on the exit status, the quoting or the speed with which
// the user's command starts.
//
// Whoever can run the command, and the command itself, are believed: that the pipe leads to
// the right host, and that nobody else reads it.
package via

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/ssh"
)

const (
	// startLimit bounds the start of the user's command, which may have to wait for
	// others, and each answer of the host.
	startLimit = 30 * time.Second
	// sendLimit is how long the host may take none of the agent's bytes.
	sendLimit = 30 * time.Second
	// maxNoise is how many bytes may come before an answer.
	maxNoise = 1 << 20
	// maxQuote is how many bytes of a line a message quotes.
	maxQuote = 200
)

// Config tells how to reach a host.
type Config struct {
	// Command is a line for /bin/sh of this machine. {host} in it is the host's name and
	// {command} the command to run there, which is appended if {command} is missing. The
	// line finds the name in PLX_HOST too, to take it apart.
	Command string
	Host    string
	// Agent returns plx for a platform.
	Agent func(context.Context, envsync.Platform) (envsync.Blob, error)
	// Env is the environment of the command. Nil: that of this process.
	Env []string
	// Step tells that all processes on the host end with the command that started them, as
	// in a step of Slurm. That command then waits for what others have left.
	Step bool
}

// plainWord is the first word of a command that the shell takes as it is.
var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*([\w./+][\w./+-]*)(\s|$)`) })

// Check refuses a command that names no host, and one that is not on this machine: it would
// fail for each host.
func Check(ctx context.Context, command string) error {
	if !strings.Contains(command, "{host}") && !strings.Contains(command, "PLX_HOST") {
		return exit.Mistake(fmt.Errorf("--via %q: it does not say where {host} goes", command), "--via 'docker exec -i {host}'")
	}
	word := plainWord().FindStringSubmatch(command)
	if word == nil {
		return nil // only the shell knows
	}
	if err := exec.CommandContext(ctx, "/bin/sh", "-c", "command -v "+word[1]).Run(); err != nil && ctx.Err() == nil {
		return exit.Mistake(fmt.Errorf("--via %q: this machine has no command %s", command, word[1]), "install %s, or write its whole path", word[1])
	}
	return nil
}

// line is the command for /bin/sh of this machine. It runs /bin/sh on the host, a word that
// is the same with and without a shell in between.
func (c *Config) line() string {
	command := c.Command
	if !strings.Contains(command, "{command}") {
		command += " {command}"
	}
	return strings.NewReplacer("{host}", ssh.Quote(c.Host), "{command}", "/bin/sh").Replace(command)
}

// Dial connects to the host.
func Dial(ctx context.Context, c Config) (*ssh.Client, error) {
	client, err := dial(ctx, &c)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", c.Host, err)
	}
	return client, nil
}

func dial(ctx context.Context, c *Config) (*ssh.Client, error) {
	p, err := startPipe(c)
	if err != nil {
		return nil, err
	}
	s := &shell{pipe: p, word: "plx-" + rand.Text()}
	client, err := s.become(ctx, c)
	if err != nil {
		p.Close() // the first error says more
		return nil, err
	}
	return client, nil
}

// shell is a shell on the host that reads its script from the pipe. It is sent one line at
// a time, and the next one after its answer: a shell may read more than it has executed.
type shell struct {
	pipe *pipe
	word string // begins each answer; no banner has it
}

// become makes the shell an SSH server, and connects to it.
func (s *shell) become(ctx context.Context, c *Config) (*ssh.Client, error) {
	answer, err := s.ask(ctx, `echo `+s.word+` "$(uname -s)" "$(uname -m)" "$HOME"`)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(answer, `"$(uname`) {
		return nil, exit.WithHint(fmt.Errorf("%s sends back what it is sent, as a terminal does", s.pipe), "let it run without a terminal: docker exec -i instead of -it, ssh -T")
	}
	kernel, rest, _ := strings.Cut(answer, " ")
	machine, home, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(home, "/") {
		return nil, exit.WithHint(fmt.Errorf("the shell there has no home: HOME=%q", home), "set HOME in the command of --via: env HOME=/root")
	}
	agent, err := c.Agent(ctx, envsync.PlatformOf(kernel, machine))
	if err != nil {
		return nil, err
	}
	if err := s.send(ctx, agent); err != nil {
		return nil, err
	}
	serve := "serve"
	if c.Step {
		serve = "step"
	}
	answer, err = s.ask(ctx, fmt.Sprintf(`exec "$HOME"/%s agent %s %s`, envsync.BlobPath(agent.Sum), serve, s.word))
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := gossh.ParseAuthorizedKey([]byte(answer))
	if err != nil {
		return nil, fmt.Errorf("the agent answers with no key: %q", answer)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	own, err := gossh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	return ssh.Over(ctx, s.pipe, ssh.Config{Host: c.Host, User: "plx", Signers: []gossh.Signer{own}, HostKey: key})
}

// send brings the agent to the host, unless it has it.
func (s *shell) send(ctx context.Context, agent envsync.Blob) error {
	path := `"$HOME"/` + envsync.BlobPath(agent.Sum)
	sum := func(of string) string {
		return fmt.Sprintf(`[ "$(sha256sum < %s 2>&1 | cut -c1-64)" = %s ]`, of, agent.Sum)
	}
	// All in one compound command: the shell has read it whole before it runs any of it.
	answer, err := s.ask(ctx, fmt.Sprintf(`if [ -f %[1]s ] && %[2]s && chmod 700 %[1]s; then echo %[3]s has; `+
		`elif umask 077 && mkdir -p "$HOME"/.plx/blobs; then echo %[3]s wants; else echo %[3]s fails; fi`, path, sum(path), s.word))
	if err == nil && answer == "fails" {
		err = fmt.Errorf("its home cannot be written: %s", cmp.Or(s.pipe.Said(), "mkdir -p ~/.plx/blobs failed"))
	}
	if err != nil || answer == "has" {
		return err
	}
	content, err := agent.Open()
	if err != nil {
		return err
	}
	defer content.Close() // opened for reading: nothing to lose
	temporary := path + ".via." + rand.Text() + ".tmp"
	_, err = s.ask(ctx, fmt.Sprintf(`{ echo %[1]s ready; head -c %[2]d > %[3]s; if %[4]s && chmod 700 %[3]s && mv -f %[3]s %[5]s; `+
		`then echo %[1]s stored; else rm -f %[3]s; echo %[1]s fails; fi; }`, s.word, agent.Size, temporary, sum(temporary), path))
	if err != nil {
		return err
	}
	if err := s.pour(ctx, content); err != nil {
		return fmt.Errorf("send plx: %w", err)
	}
	answer, err = s.answer(ctx)
	if err == nil && answer != "stored" {
		err = fmt.Errorf("send plx: it was not stored: %s", cmp.Or(s.pipe.Said(), "other bytes arrived than were sent"))
	}
	return err
}

// pour sends content. It fails if the host takes nothing for sendLimit.
func (s *shell) pour(ctx context.Context, content io.Reader) error {
	stop := context.AfterFunc(ctx, func() { s.pipe.Close() }) // it returns nil
	defer stop()
	stuck := time.AfterFunc(sendLimit, func() { s.pipe.Close() }) // it returns nil
	defer stuck.Stop()
	piece := make([]byte, 256<<10)
	for {
		n, err := content.Read(piece)
		if _, failed := s.pipe.Write(piece[:n]); failed != nil {
			if !stuck.Stop() {
				return fmt.Errorf("it took nothing for %v", sendLimit)
			}
			return s.pipe.reason(failed, "")
		}
		stuck.Reset(sendLimit)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ask sends one line of script and returns the answer.
func (s *shell) ask(ctx context.Context, script string) (string, error) {
	// A command that has ended takes nothing. What it printed before tells why.
	_, _ = io.WriteString(s.pipe, script+"\n")
	return s.answer(ctx)
}

// answer reads up to the line that begins with the word, and returns its rest.
func (s *shell) answer(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errSilent)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.pipe.Close() }) // ends the read
	defer stop()
	last := "" // of the noise
	for left := maxNoise; ; {
		line, err := s.pipe.out.ReadSlice('\n')
		left -= len(line)
		if text := bytes.TrimSpace(line); len(text) > 0 {
			last = string(text[:min(len(text), maxQuote)])
		}
		at := bytes.Index(line, []byte(s.word+" "))
		switch {
		case at >= 0 && err == nil:
			return strings.TrimRight(string(line[at+len(s.word)+1:]), "\r\n"), nil
		case errors.Is(context.Cause(ctx), errSilent):
			return "", s.pipe.silent(last)
		case left < 0:
			return "", exit.WithHint(fmt.Errorf("%s printed more than 1 MiB and does not seem to run a shell", s.pipe), tryHint)
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return "", s.pipe.reason(err, last)
		}
	}
}

var errSilent = fmt.Errorf("no answer within %v", startLimit)

// tryHint is the hint for a command that gives no shell.
const tryHint = "try the command of --via by hand: echo 'echo hello' | COMMAND must print hello, without a terminal and without a password"
