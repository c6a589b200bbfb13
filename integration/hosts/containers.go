package hosts

// ContainersImage is where a root of [Containers] has the file system of an image, as
// `docker import` and `podman import` take it: a static busybox. Nothing is pulled.
const ContainersImage = "/opt/busybox.tar"

// Containers is a root with what starts containers: docker, podman, both runtimes and,
// where it is a small program, compose. None of it runs before it is asked for.
func Containers(gen Generation) Variant {
	v := Variant{
		Name: "containers",
		Packages: []string{
			"docker.io", "podman", "crun", "runc", "busybox-static", "uidmap", "iptables", "slirp4netns", "fuse-overlayfs",
		},
		Commands: [][]string{
			{"usermod", "--append", "--groups", "docker", AgentUser},
			{"sh", "-c", "systemctl disable docker.service docker.socket containerd.service 2>/dev/null; " +
				"systemctl disable podman.service podman.socket podman-auto-update.timer podman-restart.service 2>/dev/null; " +
				"systemctl --global disable podman.service podman.socket podman-auto-update.timer podman-restart.service 2>/dev/null; true"},
			// Copies instead of layers: an overlay cannot lie on the overlay of a namespaced host.
			{"sh", "-c", "mkdir -p /etc/docker /etc/containers && " +
				`echo '{"bridge":"none","iptables":false,"ip6tables":false,"ip-forward":false,"storage-driver":"vfs","exec-opts":["native.cgroupdriver=systemd"]}' >/etc/docker/daemon.json && ` +
				`printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' >/etc/containers/storage.conf && ` +
				`printf '[engine]\nevents_logger = "file"\ncgroup_manager = "systemd"\n[containers]\npids_limit = 0\ndefault_sysctls = []\nnetns = "none"\n' >/etc/containers/containers.conf && ` +
				`test -e /etc/containers/policy.json || echo '{"default":[{"type":"insecureAcceptAnything"}]}' >/etc/containers/policy.json`},
			{"sh", "-c", "d=$(mktemp -d) && mkdir -p $d/bin $d/tmp $d/etc && cp $(command -v busybox) $d/bin/busybox && " +
				"for a in sh sleep true cat echo dd yes head tail ls ps; do ln -s busybox $d/bin/$a; done && " +
				"echo root:x:0:0::/:/bin/sh >$d/etc/passwd && tar -C $d -cf " + ContainersImage + " . && rm -rf $d && chmod 644 " + ContainersImage},
		},
	}
	switch gen {
	case Bullseye: // whose docker starts nothing without it where the kernel has it on
		v.Packages = append(v.Packages, "apparmor")
	case Trixie:
		// Older ones are a pile of Python that takes half a minute to start in a guest.
		v.Packages = append(v.Packages, "docker-cli", "docker-compose")
	}
	return v
}
