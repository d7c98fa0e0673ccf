package testhosts

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSH returns a command that runs a shell command on a host by the system's
// own ssh, which follows the password file and so must be told of Home.
func (c *Cluster) SSH(ctx context.Context, h *Host, command string) *exec.Cmd {
	in := func(name string) string { return filepath.Join(c.Home, ".ssh", name) }
	cmd := exec.CommandContext(ctx, "ssh", "-F", in("config"), "-i", in("id_ed25519"),
		"-o", "UserKnownHostsFile="+in("known_hosts"), "-o", "BatchMode=yes", h.Name, command)
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
	return cmd
}

// writeClientHome makes the client's key and returns its public line.
func (c *Cluster) writeClientHome() (string, error) {
	folder := filepath.Join(c.Home, ".ssh")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	return writeKey(filepath.Join(folder, "id_ed25519"), "ed25519")
}

// writeClientConfig needs the hosts' keys.
func (c *Cluster) writeClientConfig() error {
	var config, known bytes.Buffer
	for _, h := range c.Hosts {
		fmt.Fprintf(&config, "Host %s\n\tHostName %s\n\tPort %d\n\n", h.Name, h.Addr, h.Port)
		if err := h.writeKnown(&known); err != nil {
			return err
		}
	}
	folder := filepath.Join(c.Home, ".ssh")
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "config"), config.Bytes(), 0o600),
		os.WriteFile(filepath.Join(folder, "known_hosts"), known.Bytes(), 0o600))
}

func (h *Host) writeKnown(to *bytes.Buffer) error {
	addresses := []string{fmt.Sprintf("[%s]:%d", h.Addr, h.Port)}
	if h.Addr6 != "" {
		addresses = append(addresses, fmt.Sprintf("[%s]:%d", h.Addr6, h.Port))
	}
	for _, kind := range h.keyTypes() {
		line, err := os.ReadFile(h.path("ssh/ssh_host_" + kind + "_key.pub"))
		if err != nil {
			return err
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey(line)
		if err != nil {
			return err
		}
		normal := make([]string, len(addresses))
		for i, a := range addresses {
			normal[i] = knownhosts.Normalize(a)
		}
		to.WriteString(knownhosts.Line(normal, key) + "\n")
	}
	return nil
}

func (h *Host) keyTypes() []string {
	if types := h.cluster.options.HostKeys; len(types) > 0 {
		return types
	}
	return []string{"ed25519"}
}

func (h *Host) writeHostKeys() error {
	for _, kind := range h.keyTypes() {
		if _, err := writeKey(h.path("ssh/ssh_host_"+kind+"_key"), kind); err != nil {
			return err
		}
	}
	return nil
}

// writeKey makes a key pair, path and path.pub, and returns the public line.
func writeKey(path, kind string) (string, error) {
	private, err := newKey(kind)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return "", err
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		return "", err
	}
	line := string(ssh.MarshalAuthorizedKey(public))
	return line, errors.Join(
		os.WriteFile(path, pem.EncodeToMemory(block), 0o600),
		os.WriteFile(path+".pub", []byte(line), 0o644))
}

func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "ed25519":
		_, private, err := ed25519.GenerateKey(rand.Reader)
		return private, err
	case "ecdsa":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		return rsa.GenerateKey(rand.Reader, 3072)
	}
	return nil, fmt.Errorf("testhosts: no host keys of type %q", kind)
}

// sshdConfig leaves every limit at its default, as users' servers have it.
func (h *Host) sshdConfig() string {
	sftp := "internal-sftp"
	if h.cluster.options.ExternalSFTP {
		sftp = "/usr/lib/openssh/sftp-server"
	}
	lines := []string{
		fmt.Sprintf("Port %d", h.Port),
		"UsePAM no",
		"StrictModes no",
		"PidFile none",
		"UseDNS no",
		"PasswordAuthentication no",
		"KbdInteractiveAuthentication no",
		"PermitRootLogin prohibit-password",
		// Not in the home, which a test may take away.
		"AuthorizedKeysFile /etc/ssh/authorized_keys",
		"Subsystem sftp " + sftp,
	}
	for _, kind := range h.keyTypes() {
		lines = append(lines, "HostKey /etc/ssh/ssh_host_"+kind+"_key")
	}
	if more := h.cluster.options.SSHD; more != "" {
		lines = append(lines, more)
	}
	return strings.Join(lines, "\n") + "\n"
}
