package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/kevinburke/ssh_config"
)

// readSettings reads the common keywords of the configuration, for machines
// without an ssh. It knows no Match.
func readSettings(cfg Config) (settings, error) {
	data, err := os.ReadFile(cfg.ConfigFile)
	if errors.Is(err, os.ErrNotExist) {
		return settings{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ssh configuration: %w", err)
	}
	parsed, err := ssh_config.Decode(bytes.NewReader(data))
	if err != nil {
		err = fmt.Errorf("read ssh configuration %s: %w", cfg.ConfigFile, err)
		return nil, &hintedError{err, "with OpenSSH's ssh installed, plx reads all of its configuration"}
	}
	return lookUp(parsed, cfg.Host)
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
