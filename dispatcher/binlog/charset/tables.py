"""Facts about the servers' character sets.

`tests.support.charset_tables` writes this file; the tests compare it with the servers. `SINGLE`: the single-byte sets,
in the order in which `SINGLE_CODES` (base85, zlib) holds 256 code points of two bytes for each. `DIFFERING`: how many
characters of each multi-byte set differ from Python's codec; `DIFFERING_CODES` holds these one after another, the
character's bytes (four, zeros in front) and its code point (two). A question mark stands for a character that the
server cannot convert, as in SELECT.
"""

SINGLE = (
    "armscii8", "ascii", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "dec8", "geostd8",
    "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7", "macce",
    "macroman", "swe7", "tis620",
)  # fmt: skip
SINGLE_CODES = (
    "c-rln2Xt2D8OQ(6_rCAN5ne7sNCJeL4=#IzO~Uxt37ZVU6bKLpSP<=Ci&m{#+X8mjVT%<-6bo1o6$caq5p6|4Rv0oww5T|W7AgJT8xq7=ZHu0I"
    "%6D>d4&-Ab@9%m3<GvpNK?DjK1`f*MB3z71a48Z{9u^hgq9Q7xGOFM*R7Eu;A_>W;jvA<m6x4!;R76o5b>O2e>Y+XwpdlKeF`A$$njsC%(E=^e"
    "3a!xwZP5<t$Uu8^Ku2^!44u&hUC|BQ(E~k^i7fO&Z}dT5^h19Pz(8ap2f4_@Amn2(hF~a$VK_$Ma*V_%j79;*U@XR=5Le(zT!pJK9usg4zJ-aH"
    "gljPw*Wr468{ffq@jXnzR7}Hk%)m^{!VQ>>8*vl9kDGA|Zp9C98*axP_#y7ZkMLvs1amMK^Kch_il5=<_yz99FYzn<8o$9k_$_{i`SrSBp}Czu"
    "b$zVD!(J6MHJ1lJy&2`zH6zS$Gtx9S1*U}=V_KTArj;3ITAM=C##~|Ank!8^bCpRqSDOqo-n2IpOb2s~>1e)XI+=+kW+s`==33LmOg3H3b*7uS"
    "-gGzLHa*ODOi%M&lWD$Zvdk3I%S<)B%{0@;OgDYa4AaldH2uviGr-(n2AbI>+uUe!%uOcOeBb1mo6R6|i^(^)dP(GUq4SSj;2#$_e{V5jUNS#Z"
    "yt<y}rSey4GTKX*VKPo;%2fV7(M$4bcs0GKSDD)#ON~l_mm$NYP-e+A%#Un{?2s;4AQ}%~As)mc8HtCn7?0o&G962?EV5g=VmVgeF|5SnVq_Fn"
    "Nyo?@=_E5G4{PuziC~?ii-Qf4fQ^!fO_Ge4@Mp2&N;k>G7HpM)coo}ah)l#TxfVs(BV({n2H`av5QRgMA?0vH%Hyac;Vr3-V|ZICNJZ%`S$H2G"
    "NH+e46EajL;qNjTpWu{?jqJS8`Rj;QUb4<D;qNW>()7h%y1qmw=u344ol};-9_nT2VS0ofu18_MwtA$#2n+O_fWH<j(z=AdE*J3Ej?UL}i}~y9"
    ")T%lUtMm|U^dLQ0ySk#Tq$}$x`Z8TrSJR0)Nhj;-x`wW)Q*<ru=~NxnwRIis>$<w0uCE*DhPsh%tefbjx|vSX&2<aiQn%8rbsODQx6|o5L$}u*"
    "bVuDu$8=}iMR(QRba&lD_tcp>OZU>fbsybV_tX9LfcXA9v%F-PSHeHC-b>@or%R4=t8+JE&XThH`Fe)rdI?^6e*g2G1pFTNVFB(h*?)fZ41X*M"
    "_~TLh@$CNN38y-f!c%w}&p5UCKcqTQr?yka@twL(J*U3Yz-j0-avD2LoTg4QC(UW@v~XHFt(?|Q8*F#lI_;cvC&TINbaA>m-LT*3jss2)r>B$Y"
    "WZ?+jz)`%3x13&1Z@i6noIXxpr=QawA2<V?fjHr0<6|cWC-I4Ay$W&t|2+K<`13n^FtUNPVxP~SuP=%04*2u4n13wfzk~XpU&?=d8U7#P2^n0%"
    "AFqp+rUEMeIy@(dQYqB`sZv#<(ncCedl^mr?}07S7u!PpzfQW)o5rI^rprv~zmaAlRQ^LaEJ;#1)c<KxO=?S9X(Sz_fcoDP?@K>?80!D^(v{vd"
    "0iV!&X2ta%8|Z{bae(KyABVX=+#T-FJKUYW228LKuan{jJiGU}H6P<NDHM_7eI&hI=FxqR(Ov(J<JgRc@Fbok^~GfS6z=5|tn%mj^ZdK~h+il0"
    "d921Ff2^PF5B4wT)ZFj8eigr!-`KC=!|#BDSnCh-^Zcv*EBw*^K>r#})w_5ZFJKd%m*zntz+e1CKf%AvznRnaqCcC-U>~;P71G_t3Ht~3Vi$H}"
    "Cr)7x)n_@UaG6()llB;A^91L4DHUoZp5R12>d)u&#`&M&FO$Oj)Roz3AhXij%zo>*mm8VOG6Me6k$G*H3=jA-8x}J2ZRfU~;m<ub%!{+Q!%0}o"
    "4NPFlE5l!sWn>9|?(d9q`AbC9XZbU~xnh|ID=-BHiLiPJe;FeaOZZbGnDVF<1<aGXWDxTq`ODaVe`HT&caTxf@{jD4$;^>M<NTTbzUKUOmcL)%"
    "kMZ;UK_&eC5&rOV`THaNQRnjauk^3-$N7c+P=AP@<LCMl{P89H{X6|R{_HQycUp9|);dp@W7cF+#nNaJRz{P(8{+%_)ja>9&IkS<WB!YA#}+XE"
    "J;co~>DMLxA3Nj!F>3FVXZ$}#w^$we!rIVl)>Dn1r{e^A|6;M)^UrLiy0iZU{x3Onot>e=7s(X9wvVpG{zvDa|I?{T^B>*oSdjntXO7dk*#83m"
    "ms~p6$8;;^KRQ{w|9?^bJM;0`{1<*LqxAI>{-4hO4}Ed|FXjIXo^@Y#H@mO6TimVgHuqKcxVzom;qG*Ixx3vW_dR!yyVu?4?ss2v54i8U2i-&N"
    "VfS_Si2H_n)P2)^%l)f+%zfMaz<tMk*ZuH6d-9W7HO~L5*#F4Wk*C7_kCo|vG4HYx{_19Ri@Fsn)oto_bq7|dJMpyovHFRcqvoo4>Mr$D^)vNz"
    "^$T^k`lb4n`nCFvx<~z1{Z7qS_adh5Qw!An>H)P-J*XC`ht$Jrv3f-PK`l{B)iU*{`lDK|R;b6+O7*yULOrQgsi)M_>KXN{TCLWoKdH59oqA5K"
    "R~yvxYNL8VZBj3)m(-u*{J#SIkCoZ~?Iru~b^6@>KT*2>=lS&3t7cv{o6Rd`i`i<nnODtrv%~B(yUcD=WcHZ7W}n$_UNZ;GL379)Hm{o_<_&Yy"
    "ycz!8c>n)u_^+maKOcH_;MdC|n<DF(v5V-_yS)W;fIZCOOX=)K=;X)g7SD24?&Gv9WPAKQz57ji^GUk+(XdDEr-Q#ok3K{X{~KNUIlA}`CWFKD"
    "^N;B8>*(x31Kmh(51QW^W`~39i0?8lyvUsJ3Uk7TK@(sPm_m==%TBm5oV{o0UcuA_E%jk$zg3*f3!c9u1pQAcu>V=My7E$;9W5O%vFl~<tk<yr"
    "&61g6|KB2$n7mGf{cp5%WWO3Bg{A#3OEP65n^=JiW&g@6+yB3w{I8Z_AKha$9bzq3P~{(>gDg_ZqbXGT710LK0xXLbM#t6mYNz5vG%KF}&*jf^"
    "kMKML4vC~thb&r=#B84LZQ%)r{Azpt{Af}%Ihqw67cInmp5;=i`bwN2rEEV(XOm4H+2)h%5Yie(wj;<mAUfJF&_ecOLy}j7Os^)#3GDZa*wKOp"
    "*)!~q-Pt31lzD<bptR$)Vbko(Zr7GAuOE9}CYxT<u))?1`)eKcSiekzZC2W0tFq}fW_PW|7Tbh9ww`Vn=l}2W_o83KU+4LGI$sYy%U{p^G=HuA"
    "vD(q)&hpoD;{3l6{qM%l-v5O6zd863b)Wu!ZvTrEow@(b#XWR}Dd*e&zO?_p{OSJBWLet(nJf1G8~y*?PxpT&&$Ipi6qCW}c>X)z{3rU%{eMRp"
    "7Vu{_7|A3t6_3cw;Qn7s@%=v&#qi)pi3wqp6w0*79?nnv{{R2w`QO*H|B~{r_FvLu<d^Ti)cRNZFU@6CeE-j%zgM%EznAhw_rG3^Z{q#0mvq7N"
    "U&qrIp1BTN^=mxO1Zrt{ad@UjNn)B<9HWj_;@MW^IaUk1;D^-EWNPduo=1gGB>#n8lzjJ*`64ESBs>@$O$JR#r(uv8$)Zg(60OM7Z%-=0U1B;F"
    "yNC3YZde>mCZ)`%6EsGzE<GiSYQIggrEicq!t}uu!nFB<^piaH%OPGmGssZMm%&Uc$zBRM2X~Wef}2UU*We~{eCQezLcf?K*UDth&h^352u{Xy"
    "PSFgB(vL29{?y$K)ZER*{HdqGdjSrH?*%wYH4U`%7}Ye$Qpc&I@0IYUj-D*$AMXD-{HgZj&+Xq4O=15II>Y@~5%7;zP^+Vjf@d&l5%u~bI>5al"
    "|9R{drTpm%Yso)HazD!-r)7%Q-CG>+KPe|8UMf}w{Jk`~$P4t6O>~gr<QO~++WOIHx<~kq0BIgsA1T6;$d1U)$Syoyd@uYz=fCm4;=hixo+GbO"
    "Wc1(gKSYLynSo;Q_y5NI|9t%a^eHPgVwKg_SjU#L7uk#LCH7LAV9Q%;D_GZ7w3TdSTg6^xtJ-Qd(I(ksTiw>MHEoKmWj&i}qqerKV|`oK*0c3("
    "1KZFxvW;yM+tfC*X|}m-VO!c(wzX|z+uC+E-DaFVRs3ONwzKVGyV`EHyX|3n+Dw~ed)eN$kL_#w+5UEb9cZ&{j?J}sc96}tgY6JI)DE-5Oa6s_"
    "0w1AeR{"
)
DIFFERING = {
    "big5": 14,
    "cp932": 0,
    "eucjpms": 197,
    "euckr": 0,
    "gb18030": 2,
    "gb2312": 0,
    "gbk": 0,
    "sjis": 1,
    "ujis": 1,
}
DIFFERING_CODES = (
    "c-kG*X;9Tw7{~Ebz35eoWo4Gj`FqsVYUrM^rtw9+tr?w&W;CS)6-10eP12GYYMgP}C}$d`jp-tr%T-(vL1h&e7I8sQR6rCLT!71RAC}wq@aFUG"
    "+~0G4_c?#1{0qawO8F~Btr~U2nf30dHKW!!Lyhaw@WSRIytt_zn-&z~rI-)#@`gNYUMMO(t1$d2R)pJCdQXo|#-Lt>y?QnF={4A|zr+E(7DGA("
    "MSq2ZdL0hw^*F3!a74$d^q^la!7RNLx9DY<t>Z99$78Nuj(Iu(^Ysec8h#wNg&)Q3zBh1(ejWo_<Idz_+%<0q3qA<q?#NEu6Xj0rjWW1Tp2Ynh"
    "{fGzVe~g9l6dshPv1mai9$Ms16-W1C$tO{GSjOOy#f5k@W+RryPR6phc~~Al2P@*;<dyOaR)uEZv4lskTAsz@G8RuHuEdjxZFnka0Be%Eu{QY?"
    "tdr-kUfhjNuXSe|QohGCDQ>E>@&cY)AA#p(95%{}ctOVFMR^IEzV5(F@-kkQ3D}(aA6`jq#H%t9ul?XUZ;?sZy0HM;#NFk(xDMMlxvp-Ahc|!v"
    "4m*B!P2T#2e=~Snrr;fMP2QEM*!kO4yeHG}{_k%72QnQWin~$QADgi|)QmmiItgaDu6i@(VqZoi_RCBhkXaa#S5f|S_Z|GJ35Wh>yMn{=8jfT("
    "u*qfYq4Jk|Q}Igp3G52DV0XB6bhq1-3iwS7W|>&rVwPaGS&BJk8RnWe%ro(rZ<ga$lYraI3fyiIafexn0rMH|G)cJ2e2xX?3*2pzagSMrd(CRx"
    "XV&0;?Q#!jms_Y^?m_Kxi?qu<q+M>YcDW_m<sQ~9_lS16rS?56vtzN`dRSrSVx=92RdzZavyWl5eG`w{NIYTZ<4H>ofm3!G*4QanYiD7deIM)X"
    "96W9R!3O&;p0SyD*8Ym;Y&xE|mDp(gc+Gx;EfEv2HDVIB@yb--x~;`_-kJ*B@MYsoUk-Noa`BdrZ$;p?FCXvlHdWxR&xf79xAC6+7Vq0sd|)@="
    "Lys>^pv!Yzb$f2w9`AJwdSkHH8;^aS`~7}zG7fldl8|>4#hZ<T-V7Y_W~R*!zSU8!RDQ|Cca%z7tfJY6QWgC_1&~ao"
)
