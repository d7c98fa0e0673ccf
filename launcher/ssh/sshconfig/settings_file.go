package sshconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/kevinburke/ssh_config"
	"github.com/plx-run/plx/launcher/exit"
)

// readSettings reads the common keywords of the configuration, for machines without an
// ssh. It does not support Match.
func readSettings(q Query) (settings, error) {
	data, err := os.ReadFile(q.ConfigFile)
	if errors.Is(err, os.ErrNotExist) {
		return settings{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ssh configuration: %w", err)
	}
	parsed, err := ssh_config.Decode(bytes.NewReader(data))
	if err != nil {
		err = fmt.Errorf("read ssh configuration %s: %w", q.ConfigFile, err)
		return nil, exit.WithHint(err, "with OpenSSH's ssh installed, plx reads all of its configuration")
	}
	return lookUp(parsed, q.Host)
}

func lookUp(parsed *ssh_config.Config, host string) (settings, error) {
	values := settings{}
	for key, name := range map[string]string{
		"hostname": "HostName", "user": "User", "port": "Port", "identityfile": "IdentityFile",
		"proxyjump": "ProxyJump", "proxycommand": "ProxyCommand", "userknownhostsfile": "UserKnownHostsFile",
		"hostkeyalias": "HostKeyAlias", "identitiesonly": "IdentitiesOnly", "identityagent": "IdentityAgent",
		"globalknownhostsfile": "GlobalKnownHostsFile", "connecttimeout": "ConnectTimeout",
	} {
		found, err := parsed.GetAll(host, name)
		if err != nil {
			return nil, fmt.Errorf("ssh configuration: %s: %w", name, err)
		}
		if len(found) > 0 {
			values[key] = found
		}
	}
	return values, nil
}
