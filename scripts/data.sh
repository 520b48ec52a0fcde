#!/usr/bin/env bash
# Brings Fashion-MNIST: Debian's package, unpacked into the folder of the cache in which `--dataset fmnist` looks. Nothing is
# installed, so root is not needed. Does nothing where the files are there.
set -euo pipefail
package=dataset-fashion-mnist
shelf=/usr/share/datasets/fashion-mnist
files=(train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz)
target="${FEDTUNE_CACHE:-$HOME/.cache/fedtune}/downloads/FashionMNIST/raw"
for folder in "$shelf" "$target"; do
    for file in "${files[@]}"; do
        [ -f "$folder/$file" ] || continue 2
    done
    exit 0
done
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "Fashion-MNIST is had from Debian's package $package with apt-get and dpkg-deb; one of the two is missing. \`fedtune datasets fmnist\` says where its files belong." >&2
    exit 2
fi
mkdir -p "$target"
target="$(cd "$target" && pwd)"
work="$(mktemp -d "$target/.package.XXXXXXXX")"
trap 'rm -rf "$work"' EXIT
cd "$work"
# A list of packages may be missing, as in containers, and only root can bring the system's up to date: then one of our own is made.
user=(-o "APT::Sandbox::User=$(id -un)")
apt-get "${user[@]}" download -q "$package" || {
    lists=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache")
    mkdir -p lists/partial cache/archives/partial
    apt-get "${user[@]}" "${lists[@]}" update -q
    apt-get "${user[@]}" "${lists[@]}" download -q "$package"
}
dpkg-deb -x "$package"_*.deb .
for file in "${files[@]}"; do
    mv "$work$shelf/$file" "$target/$file"
done
echo "Fashion-MNIST is in $target."
