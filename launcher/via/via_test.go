package via_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/transporttest"
	"github.com/plx-run/plx/launcher/agent"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/launcher/via"
)

// TestMain runs the test binary as a plx agent if its arguments say so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(agent.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// direct runs {command} without a shell in between, as kubectl exec does.
const direct = "exec env {host}=1 {command}"

// self returns the test binary as the plx executable. It is hashed and
// compressed only once.
func self(context.Context, envsync.Platform) (envsync.Blob, error) { return own() }

var own = sync.OnceValues(func() (envsync.Blob, error) {
	path, err := os.Executable()
	if err != nil {
		return envsync.Blob{}, err
	}
	return envsync.FileBlob(path)
})

func dial(t *testing.T, command string) (*ssh.Client, error) {
	t.Helper()
	client, err := via.Dial(t.Context(), via.Config{Command: command, Host: "pod", Agent: self})
	if err == nil {
		t.Cleanup(func() { client.Close() }) // an error of Close is checked by other tests
	}
	return client, err
}

func mustDial(t *testing.T, command string) *ssh.Client {
	t.Helper()
	client, err := dial(t, command)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestTransport(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Setenv("HOME", t.TempDir())
	transporttest.Run(t, func(t *testing.T) transport.Transport { return mustDial(t, direct) })
}

// Dial works if the host prints text before the shell runs, and if another
// shell parses the command on the way, as with ssh.
func TestCommandsThatReachAShell(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for name, command := range map[string]string{
		"appended":             `exec env HOST={host}`,
		"another shell":        `: {host}; exec sh -c {command}`,
		"a banner":             `echo 'Welcome to {host}'; echo 'no noise' >&2; printf 'no newline '; exec {command}`,
		"a name taken apart":   `[ "${PLX_HOST#p}" = od ] && exec env {command}`,
		"a command in between": `cat | env HOST={host} {command} | cat`,
	} {
		t.Run(name, func(t *testing.T) {
			client := mustDial(t, command)
			var out bytes.Buffer
			if err := client.Run(t.Context(), "echo fine", nil, &out, nil); err != nil || out.String() != "fine\n" {
				t.Errorf("%q, %v", out.String(), err)
			}
		})
	}
}

// The agent is sent once.
func TestAgentIsSentOnce(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	mustDial(t, direct)
	blobs, err := filepath.Glob(filepath.Join(home, ".plx", "blobs", "*"))
	if err != nil || len(blobs) != 1 {
		t.Fatalf("%v, %v", blobs, err)
	}
	before, err := os.Stat(blobs[0])
	if err != nil {
		t.Fatal(err)
	}
	mustDial(t, direct)
	after, err := os.Stat(blobs[0])
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("sent again, %v", err)
	}
	if err := errors.Join(os.Remove(blobs[0]), os.WriteFile(blobs[0], []byte("damaged"), 0o700)); err != nil {
		t.Fatal(err)
	}
	mustDial(t, direct) // sends it again
}

func TestCommandsWithoutShellAreReported(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for name, c := range map[string]struct{ command, want string }{
		"missing":        {"plx-no-such-command {host}", "not found"},
		"fails":          {"echo 'no pod {host}' >&2; exit 3", "exit status 3: no pod"},
		"ends":           {"true {host}", "ended with exit status 0"},
		"wants terminal": {"echo 'the input device is not a TTY {host}' >&2; exit 1", "not a TTY"},
		"is a terminal":  {"cat; : {host}", "echoes its input, as a terminal does"},
		"asks":           {"printf 'code for %s: ' {host}; exit 1; {command}", "exit status 1: code for pod:"},
		"floods":         {"cat /dev/zero; : {host}", "more than 1 MiB"},
		"no home":        {"exec env -u HOME {command}; : {host}", "no home"},
		"full":           {"exec env HOME=/proc {command}; : {host}", "cannot create directory"},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			_, err := dial(t, c.command)
			if err == nil || !strings.HasPrefix(err.Error(), "host pod: ") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if exit.Hint(err) == "" && name != "full" {
				t.Error("no hint")
			}
			if d := time.Since(begun); d > patience.Limit {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// The error quotes the output of a command even if it exits before plx sends
// the next line.
func TestEarlyExitOfCommandIsQuoted(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "pid")
	command := fmt.Sprintf("echo $$ > %s; until [ \"$line\" = '}' ]; do read -r line; [ \"${line#say=}\" = \"$line\" ] || word=${line#say=}; done; word=${word%%%% *}; echo \"$word lacks Linux x86_64 0123456789abcdef0123456789abcdef $HOME\"; echo \"$word tools\"; echo going down; exit 3; : {host} {command}", file)
	late := func(ctx context.Context, platform envsync.Platform) (envsync.Blob, error) {
		ends(t, file)
		return self(ctx, platform)
	}
	_, err := via.Dial(t.Context(), via.Config{Command: command, Host: "pod", Agent: late})
	if err == nil || !strings.Contains(err.Error(), "ended with exit status 3: going down") {
		t.Errorf("got %v", err)
	}
}

// ends waits until no process is left in the process group whose id is in
// file.
func ends(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience.Limit); syscall.Kill(-pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the command runs on")
		}
	}
}

// Check reports mistakes in a --via command that can be found without running
// it.
func TestCheckRefusesUselessCommands(t *testing.T) {
	for command, want := range map[string]string{
		"docker exec -i":                           "{host} is missing",
		"plx-no-such-command -i {host}":            "this machine has no command plx-no-such-command",
		"/usr/no-such-folder/tool {host}":          "this machine has no command /usr/no-such-folder/tool",
		"sh -c true {host}":                        "",
		"/bin/sh {host}":                           "",
		"exec env {host}":                          "",
		"if true; then sh {host}; fi":              "",
		": {host}; sh":                             "",
		"[ \"$PLX_HOST\" = a ] && sh":              "",
		"NAME=value plx-no-such-command $PLX_HOST": "", // the shell says so
	} {
		err := via.Check(t.Context(), command)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && (!strings.HasSuffix(got, want) || exit.Hint(err) == "" || exit.Code(err) != exit.CodeUsage) {
			t.Errorf("%s: got %v, want %q", command, err, want)
		}
	}
}

// A killed --via command is reported as a lost connection, with the signal. No
// process of it is left.
func TestKilledCommandIsALostConnection(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "pid")
	client := mustDial(t, fmt.Sprintf("echo $$ > %s; echo going down >&2; {command}; : {host}", file))
	ended := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		ended <- client.Run(t.Context(), "echo started; exec cat", blocked(t), writer(func([]byte) { close(started) }), nil)
	}()
	<-started
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err = <-ended:
	case <-time.After(patience.Limit):
		t.Fatal("the run did not end")
	}
	var lost *transport.LostError
	if !errors.As(err, &lost) || !strings.Contains(transport.LossReason(err), "signal: killed: going down") {
		t.Errorf("got %v", err)
	}
}

// Close ends the --via command, even if it ignores the end of its stdin.
func TestCloseEndsTheCommand(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "pid")
	client := mustDial(t, fmt.Sprintf("echo $$ > %s; {command}; exec sleep 600; : {host}", file))
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	ends(t, file)
}

func TestDialEndsWithItsContext(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := via.Dial(ctx, via.Config{Command: "sleep 600; : {host}", Host: "pod", Agent: self}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// blocked returns a reader that blocks until the test ends.
func blocked(t *testing.T) *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r
}

// TestUserWithoutName connects to a host as a user id that the password
// database does not list.
func TestUserWithoutName(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	home := t.TempDir()
	for dir := home; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(home, 1000660000, 0); err != nil {
		t.Fatal(err)
	}
	client := mustDial(t, "exec setpriv --reuid 1000660000 --regid 0 --clear-groups env HOST={host} HOME="+home+" {command}")
	var out bytes.Buffer
	if err := client.Run(t.Context(), "id -u; id -g", nil, &out, nil); err != nil || out.String() != "1000660000\n0\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestResourceLimitIsReported checks that the error names the resource limit
// that keeps plx from starting.
func TestResourceLimitIsReported(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	_, err := dial(t, "ulimit -v 300000; exec env HOST={host} {command}")
	if err == nil || !strings.Contains(err.Error(), "the shell limits the address space to 292 MiB (ulimit -v)") || exit.Hint(err) == "" {
		t.Errorf("got %v", err)
	}
}
