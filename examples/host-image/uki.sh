#!/usr/bin/env bash
# Makes the unified kernel image of what root-image.sh made, and a disk with it: OUT/uki.efi, OUT/esp.img, OUT/cmdline, and OUT/pcr11, the value of PCR 11
# (bank sha256) that a machine shows which has booted it as far as the phases `sysinit` and `ready`.
# Usage: uki.sh IMAGE OUT [WORDS]     IMAGE: the result of root-image.sh; WORDS: more words of the kernel's command line
# Environment: SIGN_KEY, SIGN_CERTIFICATE: sign it for Secure Boot (PEM files); SIGN_PASSPHRASE: of the key
set -euo pipefail

image=${1:?the result of root-image.sh} out=${2:?the directory of the result} words=${3:-}
mkdir -p "$out"
line="console=ttyS0 quiet systemd.show_status=0 sparkfleet.roothash=$(cat "$image/roothash") sparkfleet.hashoffset=$(cat "$image/hashoffset")${words:+ $words}"
printf '%s' "$line" >"$out/cmdline"
printf 'ID=sparkfleet-host\nVERSION_ID=1\nPRETTY_NAME="Sparkfleet host"\n' >"$out/osrel"

objcopy --add-section .osrel="$out/osrel" --change-section-vma .osrel=0x20000 \
    --add-section .cmdline="$out/cmdline" --change-section-vma .cmdline=0x30000 \
    --add-section .linux="$image/vmlinuz" --change-section-vma .linux=0x2000000 \
    --add-section .initrd="$image/initrd" --change-section-vma .initrd=0x4000000 \
    /usr/lib/systemd/boot/efi/linuxx64.efi.stub "$out/uki.efi"
if [ -n "${SIGN_KEY:-}" ]; then
    # sbsign asks for a passphrase on its terminal only, so the key is opened before.
    umask 077
    openssl pkey -in "$SIGN_KEY" -passin "pass:${SIGN_PASSPHRASE:-}" -out "$out/signing.key"
    sbsign --key "$out/signing.key" --cert "$SIGN_CERTIFICATE" --output "$out/uki.signed.efi" "$out/uki.efi" 2>/dev/null
    rm "$out/signing.key"
    mv "$out/uki.signed.efi" "$out/uki.efi"
fi

# What systemd-stub measures of the sections, and then systemd of its phases. An initrd without systemd has no phase `enter-initrd`.
/lib/systemd/systemd-measure calculate --linux="$image/vmlinuz" --initrd="$image/initrd" --cmdline="$out/cmdline" --osrel="$out/osrel" \
    --bank=sha256 --phase=sysinit:ready | sed -n 's/^11:sha256=//p' >"$out/pcr11"
grep -qE '^[0-9a-f]{64}$' "$out/pcr11"

rm -f "$out/esp.img"
truncate -s 66M "$out/esp.img"
printf 'label: gpt\nlabel-id: 6f5a2c1e-5a0c-4b0e-9d0a-000000000003\nstart=2048, size=131072, type=U, uuid=6f5a2c1e-5a0c-4b0e-9d0a-000000000004, name=esp\n' |
    sfdisk --quiet "$out/esp.img"
mkfs.vfat -F 32 -i 53504b46 --offset 2048 "$out/esp.img" 65536 >/dev/null
mmd -i "$out/esp.img@@1M" ::EFI ::EFI/BOOT
mcopy -i "$out/esp.img@@1M" "$out/uki.efi" ::EFI/BOOT/BOOTX64.EFI
