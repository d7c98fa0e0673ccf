//go:build long

package ssh_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/plx-run/plx/internal/transporttest"
)

// A start-up file that prints breaks the external sftp server and writes into
// every command's output.
func TestTransportWithNoisyStartUpFile(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/lib/openssh/sftp-server"); err != nil {
		t.Skip("needs /usr/lib/openssh/sftp-server")
	}
	server := startSSHD(t, "Subsystem sftp /usr/lib/openssh/sftp-server")
	writeFile(t, filepath.Join(server.home, ".bashrc"), "echo 'Welcome to the cluster!'; printf 'quota: 90%%' >&2; printf noeol\n", 0o600)
	needBash(t)
	home := newHome(t, server)
	transporttest.Run(t, func(t *testing.T) transporttest.Transport { return dial(t, server.config(home)) })
}
