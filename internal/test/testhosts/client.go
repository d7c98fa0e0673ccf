package testhosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// SSH returns a command that runs a shell command on a host with the system's
// ssh. OpenSSH takes the home directory from the password file, not from HOME.
// Therefore SSH passes the paths of all files in c.Home as options.
func (c *Cluster) SSH(ctx context.Context, h *Host, command string) *exec.Cmd {
	in := func(name string) string { return filepath.Join(c.Home, ".ssh", name) }
	cmd := exec.CommandContext(ctx, "ssh", "-F", in("config"), "-i", in("id_ed25519"),
		"-o", "UserKnownHostsFile="+in("known_hosts"), "-o", "BatchMode=yes", h.Name, command)
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
	return cmd
}

// writeClientHome creates the client's SSH key and returns its public key as a
// line of authorized_keys.
func (c *Cluster) writeClientHome() (string, error) {
	folder := filepath.Join(c.Home, ".ssh")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	return writeKey(filepath.Join(folder, "id_ed25519"), "ed25519")
}

// writeClientConfig writes the client's ssh config and known_hosts. The files
// with the hosts' keys must exist.
func (c *Cluster) writeClientConfig() error {
	var config, known bytes.Buffer
	for _, h := range c.Hosts {
		fmt.Fprintf(&config, "Host %s\n\tHostName %s\n\n", h.Name, h.Addr)
		if err := h.disk.writeKnown(&known, h.Addr, h.Addr6); err != nil {
			return err
		}
	}
	folder := filepath.Join(c.Home, ".ssh")
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "config"), config.Bytes(), 0o600),
		os.WriteFile(filepath.Join(folder, "known_hosts"), known.Bytes(), 0o600))
}
