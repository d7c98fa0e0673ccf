package hosts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

// FindAddresses finds the data address of every host whose line names an interface, on
// that interface. like is the data address of a host that belongs to the job already;
// empty: there is none. Of an interface's addresses it takes the one that SSH arrives at,
// or the first IPv4 address. It takes the first IPv6 address if like or the only address
// of another host is one.
func FindAddresses(ctx context.Context, all []*AgentHost, like string) error {
	found, errs := make([]addresses, len(all)), make([]error, len(all))
	err := Each(ctx, all, func(i int, a *AgentHost) error {
		if found[i], errs[i] = addressesOf(ctx, a); errs[i] != nil && a.Resource.Interface != "" {
			errs[i] = fmt.Errorf("%s: %w", cmp.Or(a.chosen.by, "--nic"), errs[i])
		}
		return nil
	})
	if err := cmp.Or(err, joinSome(all, errs)); err != nil {
		return err
	}
	six := isIPv6(like) || slices.ContainsFunc(found, func(f addresses) bool { return f.four == "" && f.six != "" })
	for i, a := range all {
		f := found[i]
		if f.loopback && len(all) > 1 && !a.Embedded {
			return a.Named(fmt.Errorf("%s: network interface %s reaches this host only, and the job has others",
				cmp.Or(a.chosen.by, "--nic"), a.Resource.Interface))
		}
		if a.Resource.Interface != "" {
			a.chosen.set(f.choose(six))
		}
	}
	return nil
}

// joinSome joins the errors of a few hosts and counts the others: a wrong --nic is wrong
// on every host.
func joinSome(all []*AgentHost, errs []error) error {
	const most = 3
	var named []error
	for i, a := range all {
		if errs[i] != nil {
			named = append(named, a.Named(errs[i]))
		}
	}
	if more := len(named) - most; more > 0 {
		named = append(named[:most], fmt.Errorf("and %d more hosts without a data address", more))
	}
	return errors.Join(named...)
}

// chosen is the data address of a host whose line names an interface.
type chosen struct {
	addr string // empty until FindAddresses was called
	by   string // file:line of the host's own line; empty: --nic has chosen for all hosts
}

func (c *chosen) set(addr string) { c.addr = addr }

// onLine notes that the host's own line names the interface.
func (c *chosen) onLine(line hostfile.Host) {
	if line.Interface != "" {
		c.by = line.Pos.String()
	}
}

// addresses are the data addresses that a host can have; empty: it has none of the kind.
type addresses struct {
	four, six string // IPv4 and IPv6
	loopback  bool   // only the host itself reaches them
}

func (a addresses) choose(six bool) string {
	if a.six != "" && (six || a.four == "") {
		return a.six
	}
	return a.four
}

// add takes an address unless there is one of its kind.
func (a *addresses) add(ip netip.Addr) {
	to := &a.four
	if ip.Is6() {
		to = &a.six
	}
	if *to == "" {
		*to = ip.String()
	}
}

func isIPv6(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Unmap().Is6()
}

// addressesOf asks the host if its line names an interface. Otherwise the host has the
// one data address.
func addressesOf(ctx context.Context, a *AgentHost) (found addresses, err error) {
	if a.Resource.Interface == "" {
		text, err := a.DataAddr()
		if ip, failed := netip.ParseAddr(text); err == nil && failed == nil { // the agent reports an address that is none
			found.add(ip.Unmap())
		}
		return found, err
	}
	var stdout bytes.Buffer
	if err := a.Call(ctx, "interfaces", nil, &stdout); err != nil {
		return found, fmt.Errorf("list network interfaces: %w", err)
	}
	var links []protocol.Interface
	if err := json.Unmarshal(stdout.Bytes(), &links); err != nil {
		return found, fmt.Errorf("list network interfaces: %w", err)
	}
	return onInterface(links, a.Resource.Interface, a.Resource.DataAddr, a.Facts.ServerAddr)
}

// onInterface returns the addresses of the interface called name that other hosts can
// dial, of each kind the one that SSH arrives at or the first. wanted is the only one
// that may be taken; empty: any may.
func onInterface(links []protocol.Interface, name, wanted, server string) (found addresses, err error) {
	i := slices.IndexFunc(links, func(l protocol.Interface) bool { return l.Name == name })
	if i < 0 {
		return found, &advised{fmt.Errorf("no network interface %s: the host has %s", name, describe(links)),
			"--nic NAME names the interface of all hosts, nic=NAME on a line of the resource file that of one"}
	}
	link := links[i]
	switch {
	case !link.Up:
		return found, fmt.Errorf("network interface %s is down: the host has %s", name, describe(links))
	case !link.Running:
		return found, fmt.Errorf("network interface %s has no carrier (is its cable plugged in?): the host has %s", name, describe(links))
	}
	found = addresses{loopback: link.Loopback}
	preferred, err := netip.ParseAddr(server)
	if err == nil && wanted == "" && owns(link, preferred.Unmap()) {
		found.add(preferred.Unmap())
	}
	if ip, err := netip.ParseAddr(wanted); err == nil {
		if !owns(link, ip) {
			return found, fmt.Errorf("addr=%s is no address of its network interface: the host has %s", wanted, describe(links))
		}
		found.add(ip)
		return found, nil
	}
	for _, ip := range dialable(link) {
		found.add(ip)
	}
	if found.choose(false) == "" {
		return found, fmt.Errorf("network interface %s has no address that other hosts can dial: the host has %s", name, describe(links))
	}
	return found, nil
}

// owns reports whether an interface has the address. The loopback interface answers for
// all addresses of its network.
func owns(link protocol.Interface, ip netip.Addr) bool {
	return slices.ContainsFunc(link.Addrs, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && (p.Addr().Unmap() == ip || link.Loopback && p.Contains(ip))
	})
}

// dialable returns the addresses of an interface without the link-local ones of IPv6,
// which mean nothing without the name of an interface.
func dialable(link protocol.Interface) (ips []netip.Addr) {
	for _, text := range link.Addrs {
		if p, err := netip.ParsePrefix(text); err == nil && !(p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()) {
			ips = append(ips, p.Addr().Unmap())
		}
	}
	return ips
}

// describe lists the interfaces with an address, the loopback last. A host with
// containers has many others, which are only counted.
func describe(links []protocol.Interface) string {
	var texts, last []string
	others := 0
	for _, l := range links {
		about := []string{}
		for _, ip := range dialable(l) {
			about = append(about, ip.String())
		}
		switch {
		case len(about) == 0:
			others++
			continue
		case !l.Up:
			about = append(about, "down")
		case !l.Running:
			about = append(about, "no carrier")
		}
		text := fmt.Sprintf("%s (%s)", l.Name, strings.Join(about, ", "))
		if l.Loopback {
			last = append(last, text)
		} else {
			texts = append(texts, text)
		}
	}
	texts = append(texts, last...)
	if others > 0 {
		texts = append(texts, fmt.Sprintf("%d without an address", others))
	}
	return strings.Join(texts, ", ")
}

// advised is an error with advice for the user.
type advised struct {
	error
	hint string
}

func (a *advised) Unwrap() error { return a.error }

// Hint says what to do instead.
func (a *advised) Hint() string { return a.hint }
