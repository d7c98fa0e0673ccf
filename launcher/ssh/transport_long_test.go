//go:build long

package ssh_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/internal/test/transporttest"
	"github.com/plx-run/plx/launcher/transport"
)

// Copy and Run work although a shell start-up file prints text, which would
// break an external sftp server and precede each command's output.
func TestTransportWithNoisyStartUpFile(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/lib/openssh/sftp-server"); err != nil {
		t.Skip("needs /usr/lib/openssh/sftp-server")
	}
	server := startSSHD(t, "Subsystem sftp /usr/lib/openssh/sftp-server")
	writeFile(t, filepath.Join(server.home, ".bashrc"), "echo 'Welcome to the cluster!'; printf 'quota: 90%%' >&2; printf noeol\n", 0o600)
	needBash(t)
	home := newHome(t, server)
	transporttest.RunCommands(t, func(t *testing.T) transport.Transport { return dial(t, server.config(home)) })
	file := filepath.Join(t.TempDir(), "f")
	if err := dial(t, server.config(home)).Copy(t.Context(), strings.NewReader("x"), file); err == nil {
		t.Error("sftp works all the same")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("it has copied something")
	}
}

// A shell start-up file that reads stdin receives none of the command's stdin,
// and the error names the file as a possible cause.
func TestStartUpFileThatReadsStdin(t *testing.T) {
	needBash(t)
	server := startSSHD(t)
	client := dial(t, server.config(newHome(t, server)))
	writeFile(t, filepath.Join(server.home, ".bashrc"), "read -r answer\n", 0o600)
	err := client.Run(t.Context(), "cat", strings.NewReader("own\n"), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "no sign of it within 1m5s") || !strings.Contains(hintOf(err), "may wait for input") {
		t.Errorf("run: %v, hint %q", err, hintOf(err))
	}
}

// A user may take longer to answer a prompt than the login time limit.
func TestLoginTimeoutExcludesUserPrompts(t *testing.T) {
	cfg := startAsking(t, &gossh.ServerConfig{PasswordCallback: func(gossh.ConnMetadata, []byte) (*gossh.Permissions, error) { return nil, nil }})
	cfg.DialTimeout = time.Second
	cfg.Ask = func(ctx context.Context, _ string, _ bool, _ string) (string, error) {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(1200 * time.Millisecond): // simulates the time that a user needs to type
			return "secret", nil
		}
	}
	dial(t, cfg)
}
