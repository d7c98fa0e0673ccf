package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/scratch"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// preferred lists host key algorithms, best first. The client requests them
// after the algorithms of the keys in known_hosts. It has no certificate
// algorithms: they are requested only if known_hosts lists a certificate
// authority.
var preferred = []string{
	gossh.KeyAlgoED25519,
	gossh.KeyAlgoECDSA256, gossh.KeyAlgoECDSA384, gossh.KeyAlgoECDSA521,
	gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256,
}

// hostKeys accepts or refuses the key that one host sends.
type hostKeys struct {
	cfg        Config
	files      []string // known_hosts files; new keys are recorded in the first
	known      *knownDB // content of files, read before the handshake; nil if Config.HostKey is set
	address    string   // host:port under which known_hosts lists the host
	algorithms []string // host key algorithms to request from the server, best first
	acceptNew  bool     // true to accept an unknown key and add it to known_hosts
	unchecked  bool     // true if the ssh configuration sets StrictHostKeyChecking no
}

func newHostKeys(cfg Config, t sshconfig.Target) (*hostKeys, error) {
	k := &hostKeys{cfg: cfg, files: t.KnownHosts, address: joinAddress(strings.ToLower(t.HostName), t.Port),
		acceptNew: cfg.AcceptNewHostKeys || t.StrictKeys == sshconfig.AcceptNew, unchecked: t.StrictKeys == sshconfig.Unchecked}
	if t.KeyAlias != "" {
		k.address = joinAddress(strings.ToLower(t.KeyAlias), 22)
	}
	if cfg.HostKey != nil {
		return k, nil
	}
	var err error
	if k.known, err = openKnown(k.files); err != nil {
		return nil, err
	}
	k.algorithms = algorithmsFor(k.known, k.address)
	return k, nil
}

// algorithmsFor returns the host key algorithms to request. The types of the
// keys in known_hosts come first, so that the server sends the known key. The
// other secure types follow: a server with a key of another type must be
// refused for its changed key, not for a missing algorithm. Insecure
// algorithms come last.
func algorithmsFor(db *knownDB, address string) []string {
	weak := gossh.InsecureAlgorithms().HostKeys
	var algorithms, last []string
	for _, name := range slices.Concat(db.HostKeyAlgorithms(address), preferred, []string{gossh.KeyAlgoRSA, "ssh-dss"}) {
		switch {
		case name == "" || slices.Contains(algorithms, name) || slices.Contains(last, name):
		case slices.Contains(weak, name):
			last = append(last, name)
		default:
			algorithms = append(algorithms, name)
		}
	}
	return append(algorithms, last...)
}

// check returns nil if the key that the host sent is accepted. With acceptNew
// it also records an unknown key.
func (k *hostKeys) check(_ string, remote net.Addr, key gossh.PublicKey) error {
	if k.cfg.HostKey != nil {
		if sameKey(k.cfg.HostKey, key) {
			return nil
		}
		return k.refuse(key, []string{"the given key"}, false)
	}
	err := k.judge(k.known, remote, key)
	if isUnknown(err) && k.acceptNew {
		return k.record(remote, key)
	}
	return err
}

// judge compares the host's key with the keys in known_hosts. It returns nil
// only if the key is known.
func (k *hostKeys) judge(db *knownDB, remote net.Addr, key gossh.PublicKey) error {
	err := db.HostKeyCallback()(k.address, remote, key)
	var revoked *xknownhosts.RevokedError
	var differs *xknownhosts.KeyError
	switch {
	case errors.As(err, &revoked):
		return k.refuse(key, []string{db.place(revoked.Revoked)}, true)
	case errors.As(err, &differs):
		return k.refuse(key, k.recorded(db, differs.Want), false)
	}
	return err
}

// recorded lists the known_hosts entries in want. It omits entries of
// certificate authorities: a host that sends a plain key does not contradict
// them.
func (k *hostKeys) recorded(db *knownDB, want []xknownhosts.KnownKey) []string {
	var places []string
	known := db.HostKeys(k.address)
	for _, one := range want {
		authority := slices.ContainsFunc(known, func(key knownhosts.PublicKey) bool {
			return key.Cert && sameKey(key, one.Key)
		})
		if !authority {
			places = append(places, db.place(one))
		}
	}
	return places
}

func (k *hostKeys) refuse(key gossh.PublicKey, recorded []string, revoked bool) *HostKeyError {
	return &HostKeyError{
		Host: k.cfg.Host, Address: knownhosts.Normalize(k.address), unchecked: k.unchecked,
		KeyType: key.Type(), Fingerprint: gossh.FingerprintSHA256(key), Recorded: recorded, Revoked: revoked,
	}
}

// knownDB is the parsed content of several known_hosts files.
type knownDB struct {
	*knownhosts.HostKeyDB
	names map[string]string // maps the path of a cleaned copy to the original file; nil if the originals were read
}

// openKnown reads the known_hosts files, and skips files that do not exist.
// Like ssh it skips lines that it cannot parse, so that one bad line does not
// block every connection.
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

// openCleaned reads copies of the known_hosts files in which each line that
// cannot be parsed is empty. Emptying instead of deleting keeps the line
// numbers correct.
func openCleaned(files []string) (*knownDB, error) {
	folder, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Remove() }() // a copy that remains does no harm, since it has only public keys
	known := &knownDB{names: map[string]string{}}
	var copies []string
	for i, file := range files {
		data, err := bounded.ReadFile(file, bounded.Record)
		if err != nil {
			return nil, err
		}
		copied := fmt.Sprintf("%s/%d", folder.Path, i)
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

// place returns the position and type of a known_hosts entry, as "file:line
// (type)".
func (db *knownDB) place(key xknownhosts.KnownKey) string {
	file := key.Filename
	if original, is := db.names[file]; is {
		file = original
	}
	return fmt.Sprintf("%s:%d (%s)", file, key.Line, key.Key.Type())
}

// recording serializes the goroutines of this process that add keys to
// known_hosts. A file lock excludes other processes, if the file system
// supports locks.
var recording sync.Mutex

// lockTimeout limits the wait for another process that holds the lock on
// known_hosts.
const lockTimeout = 10 * time.Second

// unrecorded maps host:port to the keys that this process accepted but could
// not write to known_hosts. The mutex recording guards the map.
var unrecorded = map[string]gossh.PublicKey{}

// record adds the host's key to the user's known_hosts. If another process has
// added a key for the host meanwhile, record accepts only that key. If the
// file cannot be written, the key is accepted until this process exits.
func (k *hostKeys) record(remote net.Addr, key gossh.PublicKey) error {
	recording.Lock()
	defer recording.Unlock()
	if k.files[0] == os.DevNull {
		return k.remember(key, errors.New("UserKnownHostsFile is none"))
	}
	file, err := openLocked(k.files[0])
	if errors.Is(err, syscall.EROFS) || errors.Is(err, os.ErrPermission) {
		return k.remember(key, err)
	}
	if err != nil {
		return fmt.Errorf("record the host key: %w", err)
	}
	defer func() { _ = file.Close() }() // releases the lock; the write was checked already
	db, err := openKnown(k.files)
	if err != nil {
		return err
	}
	if err := k.judge(db, remote, key); !isUnknown(err) {
		return err
	}
	if err := appendLine(file, knownhosts.Line([]string{k.address}, key)); err != nil {
		return fmt.Errorf("record the host key in %s: %w", k.files[0], err)
	}
	k.cfg.Notice(fmt.Sprintf("host %s: new host key %s %s recorded in %s",
		k.cfg.Host, key.Type(), gossh.FingerprintSHA256(key), k.files[0]))
	return nil
}

// remember accepts a key that cannot be written to known_hosts, until this
// process exits. It refuses the key if the host sent a different key to this
// process before. The caller holds the mutex recording.
func (k *hostKeys) remember(key gossh.PublicKey, cause error) error {
	before, seen := unrecorded[k.address]
	if seen && !sameKey(before, key) {
		return k.refuse(key, []string{"an earlier connection of this command (" + before.Type() + ")"}, false)
	}
	unrecorded[k.address] = key
	if !seen {
		k.cfg.Notice(fmt.Sprintf("warning: host %s: new host key %s %s is accepted but not recorded, so that the next command must accept it again: %v",
			k.cfg.Host, key.Type(), gossh.FingerprintSHA256(key), cause))
	}
	return nil
}

func isUnknown(err error) bool {
	refusal, is := err.(*HostKeyError)
	return is && !refusal.Changed()
}

// openLocked opens the file for appending and takes an exclusive lock on it.
// It creates the file and its directory if they are missing.
func openLocked(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	giveUp := time.Now().Add(lockTimeout)
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			// If flock failed, the file system has no locks. Two processes may
			// then add the same line, which does no harm.
			return file, nil
		}
		if time.Now().After(giveUp) {
			_ = file.Close() // no data was written, so an error of Close loses nothing
			return nil, fmt.Errorf("%s is locked by another process", path)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// appendLine appends one line to the file. If the last line lacks its newline,
// appendLine adds that first.
func appendLine(file *os.File, line string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	start := ""
	if size := info.Size(); size > 0 && info.Mode().IsRegular() {
		last := make([]byte, 1)
		if _, err := file.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			start = "\n"
		}
	}
	_, err = file.WriteString(start + line + "\n")
	return err
}
