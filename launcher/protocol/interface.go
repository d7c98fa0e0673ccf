package protocol

// Interface is a network interface of a host, as "plx agent interfaces" prints it.
type Interface struct {
	Name     string   `json:"name"`
	Up       bool     `json:"up"`       // switched on
	Running  bool     `json:"running"`  // has a carrier: its cable is plugged in
	Loopback bool     `json:"loopback"` // reaches this host only
	Addrs    []string `json:"addrs"`    // addresses with the lengths of their prefixes, such as 10.0.0.1/24
}
