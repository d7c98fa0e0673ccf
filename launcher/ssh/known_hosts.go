package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// knownDB is the content of known_hosts files.
type knownDB struct {
	*knownhosts.HostKeyDB
	names map[string]string // by copy: the file that was copied
}

// openKnown reads the files that exist. Like ssh it skips lines that it does not
// understand: one old or foreign line must not lock out all hosts.
func openKnown(files []string) (*knownDB, error) {
	var exist []string
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			exist = append(exist, file)
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read known hosts: %w", err)
		}
	}
	db, err := knownhosts.NewDB(exist...)
	if err == nil {
		return &knownDB{HostKeyDB: db}, nil
	}
	known, err := openCleaned(exist)
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}
	return known, nil
}

// openCleaned reads copies of the files in which all lines but keys are empty. So the line
// numbers stay the same.
func openCleaned(files []string) (*knownDB, error) {
	folder, err := os.MkdirTemp("", "plx-known-hosts-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }() // a copy of public keys does no harm
	known := &knownDB{names: map[string]string{}}
	var copies []string
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		copied := fmt.Sprintf("%s/%d", folder, i)
		if err := os.WriteFile(copied, cleanKnown(data), 0o600); err != nil {
			return nil, err
		}
		known.names[copied] = file
		copies = append(copies, copied)
	}
	known.HostKeyDB, err = knownhosts.NewDB(copies...)
	return known, err
}

func cleanKnown(data []byte) []byte {
	lines := bytes.Split(data, []byte("\n"))
	for i, line := range lines {
		if _, _, _, _, _, err := gossh.ParseKnownHosts(line); err != nil {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// place returns file, line and type of a key on record.
func (db *knownDB) place(key xknownhosts.KnownKey) string {
	file := key.Filename
	if original, is := db.names[file]; is {
		file = original
	}
	return fmt.Sprintf("%s:%d (%s)", file, key.Line, key.Key.Type())
}
